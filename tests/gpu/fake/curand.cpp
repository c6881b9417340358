// libcurand.so.10: even numbers in (0, 1]. Not the real generators' sequences: nobody may rely on those.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "tests/gpu/fake/behaviour.h"

namespace varve::gpu::fake {
namespace {

enum Status : int { kSuccess = 0, kTypeError = 103 };

struct Generator {
  std::uint64_t seed = 0, at = 0;

  float next() {
    std::uint64_t mixed = seed + ++at * 0x9E3779B97F4A7C15;
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9;
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB;
    mixed ^= mixed >> 31;
    return float((mixed >> 40) + 1) / float(1 << 24);
  }
};

}  // namespace

FAKE_VERSION(curandGetVersion, 10309)

FAKE_API int curandCreateGenerator(Generator** generator, int type) {
  if (const int code = enter("curandCreateGenerator")) return code;
  if (type != 100 && type != 101 && type != 161) return kTypeError;
  *generator = new Generator;
  return kSuccess;
}

FAKE_API int curandDestroyGenerator(Generator* generator) {
  if (const int code = enter("curandDestroyGenerator")) return code;
  delete generator;
  return kSuccess;
}

FAKE_API int curandSetPseudoRandomGeneratorSeed(Generator* generator, unsigned long long seed) {
  if (const int code = enter("curandSetPseudoRandomGeneratorSeed")) return code;
  *generator = {.seed = seed, .at = 0};
  return kSuccess;
}

// Wrong numbers: a generator that stands still. In another place than the middle a flipped bit would be a random number
// too.
FAKE_API int curandGenerateUniform(Generator* generator, float* to, std::size_t count) {
  if (const int code = enter("curandGenerateUniform")) return code;
  float* const numbers = on_device(to, "curandGenerateUniform");
  const auto how = wrong("random");
  std::vector<float> result(count);
  for (auto& value : result) value = generator->next();
  if (how == Wrong::kFlip)
    std::fill(numbers, numbers + count, 0.25f);
  else
    give(how, numbers, result.data(), count);
  return kSuccess;
}

}  // namespace varve::gpu::fake
