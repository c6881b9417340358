// The steps "convolution", "fft" and "random".
#include <cmath>
#include <optional>

#include "gpu/probe/reference.h"
#include "gpu/probe/step.h"

namespace varve::gpu::probe {
namespace {

const LibraryNames kCudnn = {"libcudnn.so.9", "libcudnn.so.8"};
const LibraryNames kCufft = {"libcufft.so.12", "libcufft.so.11", "libcufft.so.10"};
const LibraryNames kCurand = {"libcurand.so.10"};

// docs/guide/gpu-check.md says why these are the limits.
constexpr double kConvolutionRoundings = 1024;
constexpr double kFourierRoundings = 16;  // times the logarithm of the number of points
constexpr double kStandardDeviations = 7;
constexpr std::size_t kConvolutionSamples = 4096;
constexpr std::size_t kTransforms = 4;  // in one call
constexpr std::size_t kMostWorkspace = std::size_t{2} << 30;

using Cudnn = Api<api::CudnnFunctions>;

class Convolution {
 public:
  Convolution(const Driver& driver, const Cudnn& cudnn, api::CudnnHandle handle, const ConvolutionShape& shape)
      : driver_(driver),
        cudnn_(cudnn),
        handle_(handle),
        shape_(shape),
        x_(random_floats(shape.input_count(), 1)),
        w_(random_floats(shape.filter_count(), 2)),
        device_x_(driver, x_),
        device_w_(driver, w_),
        y_(driver, shape.output_count()),
        input_(cudnn.cudnnDestroyTensorDescriptor),
        output_(cudnn.cudnnDestroyTensorDescriptor),
        filter_(cudnn.cudnnDestroyFilterDescriptor),
        convolution_(cudnn.cudnnDestroyConvolutionDescriptor) {
    describe();
    choose();
  }

  int algorithm() const { return algorithm_; }
  void run() const {
    const float one = 1, zero = 0;
    cudnn_.call(cudnn_.cudnnConvolutionForward, handle_, static_cast<const void*>(&one), input_.get(),
                static_cast<const void*>(device_x_.get()), filter_.get(), static_cast<const void*>(device_w_.get()),
                convolution_.get(), algorithm_, reinterpret_cast<void*>(workspace_ ? workspace_->address() : 0),
                workspace_bytes_, static_cast<const void*>(&zero), output_.get(), static_cast<void*>(y_.get()));
  }
  void forget() const { y_.fill_with_nan(); }
  double checked_error(const char* when) const {
    const auto y = y_.download();
    const double single = convolution_error(shape_, x_, w_, y, kConvolutionSamples, 3),
                 all = convolution_sum_error(shape_, x_, w_, y, 4), error = std::max(single, all);
    if (!(error <= kConvolutionRoundings)) {
      fail<Error>(
          "cudnnConvolutionForward with algorithm {}, {}: off by {:.3g} roundings of its sums ({} are expected at "
          "most)",
          algorithm_, when, error, kConvolutionRoundings);
    }
    return error;
  }

 private:
  static int number(std::size_t value) { return static_cast<int>(value); }

  void describe() {
    const int images = number(shape_.images), channels = number(shape_.channels), filters = number(shape_.filters),
              size = number(shape_.size);
    cudnn_.call(cudnn_.cudnnCreateTensorDescriptor, input_.out());
    cudnn_.call(cudnn_.cudnnSetTensor4dDescriptor, input_.get(), api::kCudnnNchw, api::kCudnnFloat, images, channels,
                size, size);
    cudnn_.call(cudnn_.cudnnCreateFilterDescriptor, filter_.out());
    cudnn_.call(cudnn_.cudnnSetFilter4dDescriptor, filter_.get(), api::kCudnnFloat, api::kCudnnNchw, filters, channels,
                3, 3);
    cudnn_.call(cudnn_.cudnnCreateConvolutionDescriptor, convolution_.out());
    cudnn_.call(cudnn_.cudnnSetConvolution2dDescriptor, convolution_.get(), 1, 1, 1, 1, 1, 1,
                api::kCudnnCrossCorrelation, api::kCudnnFloat);
    // Without this, cuDNN rounds to the 10 bits of TF32 on devices that have it.
    if (cudnn_.cudnnSetConvolutionMathType)
      cudnn_.call(cudnn_.cudnnSetConvolutionMathType, convolution_.get(), api::kCudnnFmaMath);
    int n = 0, c = 0, h = 0, w = 0;
    cudnn_.call(cudnn_.cudnnGetConvolution2dForwardOutputDim, convolution_.get(), input_.get(), filter_.get(), &n, &c,
                &h, &w);
    if (n != images || c != filters || h != size || w != size) {
      fail<Error>("cudnnGetConvolution2dForwardOutputDim says {} x {} x {} x {} instead of {} x {} x {} x {}", n, c, h,
                  w, images, filters, size, size);
    }
    cudnn_.call(cudnn_.cudnnCreateTensorDescriptor, output_.out());
    cudnn_.call(cudnn_.cudnnSetTensor4dDescriptor, output_.get(), api::kCudnnNchw, api::kCudnnFloat, n, c, h, w);
  }

  // The one that cuDNN itself would take, as frameworks do, whose workspace is not absurd.
  void choose() {
    api::CudnnForwardAlgorithm proposed[api::kCudnnForwardAlgorithms] = {};
    int count = 0;
    cudnn_.call(cudnn_.cudnnGetConvolutionForwardAlgorithm_v7, handle_, input_.get(), filter_.get(), convolution_.get(),
                output_.get(), api::kCudnnForwardAlgorithms, &count,
                static_cast<api::CudnnForwardAlgorithm*>(proposed));
    for (int i = 0; i < std::min(count, api::kCudnnForwardAlgorithms); ++i) {
      std::size_t bytes = 0;
      if (proposed[i].status != api::kCudnnSuccess) continue;
      if (cudnn_.cudnnGetConvolutionForwardWorkspaceSize(handle_, input_.get(), filter_.get(), convolution_.get(),
                                                         output_.get(), proposed[i].algorithm,
                                                         &bytes) != api::kCudnnSuccess)
        continue;
      if (bytes > kMostWorkspace) continue;
      algorithm_ = proposed[i].algorithm;
      workspace_bytes_ = bytes;
      if (bytes) workspace_.emplace(driver_, bytes);
      return;
    }
    fail<Error>("cudnnGetConvolutionForwardAlgorithm_v7 proposes {} algorithms, none of which can be used", count);
  }

  const Driver& driver_;
  const Cudnn& cudnn_;
  api::CudnnHandle handle_;
  ConvolutionShape shape_;
  std::vector<float> x_, w_;
  DeviceArray<float> device_x_, device_w_, y_;
  Handle<api::CudnnTensor> input_, output_;
  Handle<api::CudnnFilter> filter_;
  Handle<api::CudnnConvolution> convolution_;
  int algorithm_ = 0;
  std::size_t workspace_bytes_ = 0;
  std::optional<DeviceMemory> workspace_;
};

ConvolutionShape convolution_shape(const Step& step) {
  ConvolutionShape shape;
  if (step.size == 0) return shape;
  shape.size = step.size;
  shape.images = std::min(shape.images, step.size);
  shape.channels = std::min(shape.channels, step.size);
  shape.filters = std::min(shape.filters, step.size);
  return shape;
}

}  // namespace

std::string run_convolution(Step& step) {
  DeviceStep gpu(step);
  open_beforehand(kCublasLt, step.folders);
  std::optional<Cudnn> opened;
  step.report.metric("convolution.open", MetricKind::kFirstCall,
                     seconds_of([&] { opened.emplace(open_api<api::CudnnFunctions>(step, kCudnn)); }));
  const auto& cudnn = *opened;
  step.report.fact("cudnn", std::to_string(cudnn.cudnnGetVersion()));
  Handle<api::CudnnHandle> handle(cudnn.cudnnDestroy);
  gpu.first("convolution.create", [&] { cudnn.call(cudnn.cudnnCreate, handle.out()); });
  std::optional<Convolution> convolution;
  gpu.first("convolution.choose",
            [&] { convolution.emplace(gpu.driver, cudnn, handle.get(), convolution_shape(step)); });
  step.report.fact("convolution.algorithm", std::to_string(convolution->algorithm()));
  gpu.first("convolution.first", [&] { convolution->run(); });
  double error = convolution->checked_error("the first");
  convolution->forget();
  gpu.steady("convolution.steady", [&] { convolution->run(); });
  error = std::max(error, convolution->checked_error("after the timed ones"));
  step.report.fact("convolution.roundings", fmt::format("{:.1f}", error));
  return fmt::format("convolution 3 x 3 with algorithm {}: {:.1f} of {} roundings", convolution->algorithm(), error,
                     kConvolutionRoundings);
}

namespace {

using Cufft = Api<api::CufftFunctions>;

struct Transforms {
  std::size_t points;
  std::vector<api::CufftComplex> x;  // kTransforms of them, one after the other

  explicit Transforms(std::size_t count) : points(count), x(count * kTransforms) {
    const auto numbers = random_floats(2 * x.size(), 1);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = {numbers[2 * i], numbers[2 * i + 1]};
  }
  double limit() const {
    return kFourierRoundings * kFloatRounding * std::max(1.0, std::log2(static_cast<double>(points)));
  }

  void check(const std::vector<api::CufftComplex>& transformed, const std::vector<api::CufftComplex>& back,
             const char* when) const {
    const std::size_t frequencies[] = {0, 1, points / 3, points - 1};
    for (std::size_t i = 0; i < kTransforms; ++i) {
      const auto given = std::span(x).subspan(i * points, points),
                 result = std::span(transformed).subspan(i * points, points);
      // Both ways of being wrong at once would take a transform that is wrong and its inverse: the sums of single
      // frequencies are the host's own.
      const double error = fourier_error(given, result, frequencies),
                   round_trip = round_trip_error(given, std::span(back).subspan(i * points, points), points);
      if (!(error <= limit()))
        fail<Error>(
            "cufftExecC2C of {} points, {}: a frequency of transform {} is off by {:.3g} of the signal ({:.3g} is "
            "expected at most)",
            points, when, i, error, limit());
      if (!(round_trip <= limit()))
        fail<Error>(
            "cufftExecC2C of {} points, {}: transform {} there and back is off by {:.3g} ({:.3g} is expected at most)",
            points, when, i, round_trip, limit());
    }
  }
};

}  // namespace

std::string run_fft(Step& step) {
  DeviceStep gpu(step);
  const auto cufft = open_api<api::CufftFunctions>(step, kCufft);
  tell_version(step, cufft, cufft.cufftGetVersion, "cufft");
  const Transforms transforms(step.size_or(std::size_t{1} << 20));
  const DeviceArray<api::CufftComplex> x(gpu.driver, transforms.x), transformed(gpu.driver, transforms.x.size()),
      back(gpu.driver, transforms.x.size());
  Handle<api::CufftHandle> plan(cufft.cufftDestroy, -1);
  gpu.first("fft.plan", [&] {
    cufft.call(cufft.cufftPlan1d, plan.out(), static_cast<int>(transforms.points), api::kCufftC2C,
               static_cast<int>(kTransforms));
  });
  const auto there = [&] {
    cufft.call(cufft.cufftExecC2C, plan.get(), x.get(), transformed.get(), api::kCufftForward);
  };
  const auto and_back = [&] {
    cufft.call(cufft.cufftExecC2C, plan.get(), transformed.get(), back.get(), api::kCufftInverse);
  };
  gpu.first("fft.first", there);
  and_back();
  transforms.check(transformed.download(), back.download(), "the first");
  transformed.fill_with_nan();
  back.fill_with_nan();
  gpu.steady("fft.steady", there);
  and_back();
  transforms.check(transformed.download(), back.download(), "after the timed ones");
  return fmt::format("{} transforms of {} points: single frequencies and the way back within {:.2g} of the signal",
                     kTransforms, transforms.points, transforms.limit());
}

namespace {

void check_uniform(const std::vector<float>& numbers) {
  const auto found = uniformity(numbers);
  if (!found.in_range) fail<Error>("curandGenerateUniform: not all numbers are above 0 and at most 1");
  for (const auto& [what, deviations] :
       {std::pair("mean", found.mean), {"variance", found.variance}, {"spread over 256 buckets", found.buckets}}) {
    if (!(deviations <= kStandardDeviations))
      fail<Error>("curandGenerateUniform: the {} of {} numbers is {:.1f} standard deviations off", what, numbers.size(),
                  deviations);
  }
}

}  // namespace

std::string run_random(Step& step) {
  DeviceStep gpu(step);
  const auto curand = open_api<api::CurandFunctions>(step, kCurand);
  tell_version(step, curand, curand.curandGetVersion, "curand");
  const std::size_t count = step.size_or(std::size_t{1} << 24);
  const DeviceArray<float> numbers(gpu.driver, count);
  // A generator of its own each time: the same seed must begin the same sequence.
  const auto drawn = [&](int type, unsigned long long seed) {
    Handle<api::CurandGenerator> generator(curand.curandDestroyGenerator);
    curand.call(curand.curandCreateGenerator, generator.out(), type);
    curand.call(curand.curandSetPseudoRandomGeneratorSeed, generator.get(), seed);
    numbers.fill_with_nan();
    curand.call(curand.curandGenerateUniform, generator.get(), numbers.get(), count);
    return numbers.download();
  };
  std::vector<float> first;
  gpu.first("random.first", [&] { first = drawn(api::kCurandPhilox, 1); });
  check_uniform(first);
  step.report.step("comparing sequences");
  if (drawn(api::kCurandPhilox, 1) != first) fail<Error>("curandGenerateUniform: the same seed gives other numbers");
  if (count > 1 && drawn(api::kCurandPhilox, 2) == first)
    fail<Error>("curandGenerateUniform: another seed gives the same numbers");
  check_uniform(drawn(api::kCurandXorwow, 1));
  Handle<api::CurandGenerator> generator(curand.curandDestroyGenerator);
  curand.call(curand.curandCreateGenerator, generator.out(), api::kCurandPhilox);
  curand.call(curand.curandSetPseudoRandomGeneratorSeed, generator.get(), 3ULL);
  gpu.steady("random.steady",
             [&] { curand.call(curand.curandGenerateUniform, generator.get(), numbers.get(), count); });
  check_uniform(numbers.download());
  return fmt::format(
      "{} uniform numbers of Philox and of XORWOW: range, mean, variance, spread; the same seed gives the same", count);
}

}  // namespace varve::gpu::probe
