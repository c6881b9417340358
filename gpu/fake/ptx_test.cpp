// The PTX that the probe loads, run thread by thread on the cases that its CUDA counterparts are tried on; and what the
// interpreter refuses.
#include <fstream>
#include <numeric>
#include <sstream>

#include <gtest/gtest.h>

#include "gpu/fake/ptx.h"
#include "gpu/probe/kernels/cases.h"

namespace varve::gpu::fake::ptx {
namespace {

Kernel kernel_of(const std::string& name) {
  std::ifstream stream(std::string(VARVE_KERNELS) + "/" + name + ".ptx");
  std::stringstream text;
  text << stream.rdbuf();
  return parse(text.str(), 60).at(name);
}

// Memory of the device in these tests is where it is; what is read or written outside `allowed` is an error.
struct Memory {
  std::vector<std::pair<const void*, std::size_t>> allowed;

  template <typename T>
  std::uint64_t add(const std::vector<T>& values) {
    allowed.emplace_back(values.data(), values.size() * sizeof(T));
    return reinterpret_cast<std::uint64_t>(values.data());
  }

  Launch launch(std::uint32_t blocks, std::uint32_t threads) const {
    Launch result{
        .grid = {blocks, 1, 1}, .block = {threads, 1, 1}, .dynamic_shared = 0, .address = {}, .spoil = Wrong::kNo};
    result.address = [this](std::uint64_t address, std::size_t bytes) -> void* {
      for (const auto& [begin, size] : allowed) {
        const auto first = reinterpret_cast<std::uint64_t>(begin);
        if (address >= first && address + bytes <= first + size)
          return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
      }
      throw std::runtime_error("outside of the memory it was given");
    };
    return result;
  }
};

TEST(Ptx, AxpyGivesWhatTheHostComputes) {
  const auto kernel = kernel_of("axpy");
  for (const auto& c : kernels::kAxpyCases) {
    std::vector<float> x, y, wanted;
    for (unsigned i = 0; i < c.count; ++i) {
      x.push_back(float(kernels::axpy_x(c, i)));
      y.push_back(float(kernels::axpy_y(c, i)));
      wanted.push_back(float(kernels::axpy_result(c, i)));
    }
    Memory memory;
    auto a = float(c.a);
    auto on_x = memory.add(x), on_y = memory.add(y);
    auto count = c.count;
    void* parameters[] = {&a, &on_x, &on_y, &count};
    run(kernel, memory.launch((c.count + c.threads - 1) / c.threads, c.threads), parameters);
    EXPECT_EQ(y, wanted) << c.count;
    EXPECT_EQ(std::accumulate(y.begin(), y.end(), 0LL,
                              [](long long sum, float value) { return sum + static_cast<long long>(value); }),
              c.total);
  }
}

TEST(Ptx, SumGivesTheTotalsOfTheCases) {
  const auto kernel = kernel_of("sum");
  for (const auto& c : kernels::kSumCases) {
    std::vector<unsigned> values;
    for (unsigned i = 0; i < c.count; ++i) values.push_back(kernels::sum_value(c, i));
    std::vector<unsigned long long> total(1);
    Memory memory;
    auto on_values = memory.add(values), on_total = memory.add(total);
    auto count = c.count;
    void* parameters[] = {&on_values, &count, &on_total};
    run(kernel, memory.launch(c.blocks, c.threads), parameters);
    EXPECT_EQ(total[0], c.total) << c.count;
  }
}

TEST(Ptx, SpoiledKernelsGiveOtherResults) {
  const auto kernel = kernel_of("axpy");
  for (const auto how : {Wrong::kFlip, Wrong::kNan, Wrong::kZero}) {
    std::vector<float> x(40, 1), y(40, 2);
    Memory memory;
    float a = 3;
    auto on_x = memory.add(x), on_y = memory.add(y);
    unsigned count = 40;
    void* parameters[] = {&a, &on_x, &on_y, &count};
    auto launch = memory.launch(2, 32);
    launch.spoil = how;
    run(kernel, launch, parameters);
    EXPECT_NE(y, std::vector<float>(40, 5));
  }
}

std::string with(const std::string& body, const std::string& target = "sm_60") {
  return ".version 5.0\n.target " + target + "\n.address_size 64\n.visible .entry k(.param .u64 p, .param .u32 n) {\n" +
         body + "\n}\n";
}

// Runs k(values, count) with one thread.
std::vector<unsigned> result_of(const std::string& body, std::vector<unsigned> values = {0, 0}) {
  const auto kernels = parse(with(body), 60);
  Memory memory;
  auto at = memory.add(values);
  auto count = unsigned(values.size());
  void* parameters[] = {&at, &count};
  run(kernels.at("k"), memory.launch(1, 1), parameters);
  return values;
}

TEST(Ptx, ArithmeticIsThatOfItsTypes) {
  const std::string begin = ".reg .b32 %r<5>; .reg .b64 %d<3>; .reg .pred %p; ld.param.u64 %d1, [p];";
  EXPECT_EQ(result_of(begin + "mov.s32 %r1, -7; shr.s32 %r2, %r1, 1; st.global.u32 [%d1], %r2; shr.u32 %r2, %r1, 28; "
                              "st.global.u32 [%d1+4], %r2; ret;"),
            (std::vector<unsigned>{unsigned(-4), 15}));
  EXPECT_EQ(result_of(begin + "mov.u32 %r1, 0xFFFFFFFF; mul.hi.u32 %r2, %r1, %r1; st.global.u32 [%d1], %r2; "
                              "setp.lt.s32 %p, %r1, 0; selp.u32 %r3, 5, 6, %p; st.global.u32 [%d1+4], %r3; ret;"),
            (std::vector<unsigned>{0xFFFFFFFE, 5}));
  EXPECT_EQ(result_of(begin + "mov.u32 %r1, 0xFFFFFFFF; add.u32 %r1, %r1, 2; mul.wide.u32 %d2, %r1, 3; cvt.u32.u64 "
                              "%r2, %d2; st.global.u32 [%d1], %r2; ret;"),
            (std::vector<unsigned>{3, 0}));
  EXPECT_EQ(result_of(begin + ".reg .f32 %f<3>; mov.f32 %f1, 0f40200000; cvt.rzi.u32.f32 %r1, %f1; cvt.rn.f32.u32 %f2, "
                              "%r1; st.global.u32 [%d1], %r1; st.global.f32 [%d1+4], %f2; ret;"),
            (std::vector<unsigned>{2, 0x40000000}));
}

TEST(Ptx, RefusesWhatAGpuWouldNotTake) {
  EXPECT_THROW(parse("hello", 60), std::runtime_error);
  EXPECT_THROW(parse(with("ret;", "sm_90"), 60), std::runtime_error);
  EXPECT_THROW(parse(with("mov.u32 %r1, 0; ret;"), 60), std::runtime_error);             // no such register
  EXPECT_THROW(parse(with(".reg .b32 %r; bra nowhere; ret;"), 60), std::runtime_error);  // no such label
  EXPECT_THROW(parse(with(".reg .b32 %r; mov.u32 %r, 0;"), 60), std::runtime_error);     // no end
  EXPECT_THROW(parse(with(".reg .b32 %r; .reg .b64 %d; add.u64 %d, %d, %r; ret;"), 60), std::runtime_error);  // sizes
  EXPECT_THROW(result_of(".reg .b64 %d; ld.param.u64 %d, [p]; st.global.u32 [%d+8], 1; ret;"),
               std::runtime_error);  // behind the end
  EXPECT_THROW(result_of(".reg .b64 %d; ld.param.u64 %d, [p]; st.global.u32 [%d+2], 1; ret;"),
               std::runtime_error);  // not aligned
  EXPECT_THROW(result_of(".reg .b64 %d; ld.param.u64 %d, [p]; frobnicate.u64 %d, %d; ret;"),
               std::runtime_error);                                  // no such instruction
  EXPECT_THROW(result_of("again: bra again;"), std::runtime_error);  // no end
}

}  // namespace
}  // namespace varve::gpu::fake::ptx
