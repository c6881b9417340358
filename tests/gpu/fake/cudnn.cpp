// libcudnn.so.9: forward convolution in two dimensions.
#include <algorithm>
#include <vector>

#include "tests/gpu/fake/behaviour.h"

namespace varve::gpu::fake {
namespace {

enum Status : int { kSuccess = 0, kBadParam = 2000, kNotSupported = 3000 };
constexpr int kAlgorithms = 8;
constexpr std::size_t kWorkspace = 4096;

struct Shape {  // n, c, h, w of a tensor, k, c, h, w of a filter; floats, NCHW
  std::size_t n = 0, c = 0, h = 0, w = 0;
  std::size_t count() const { return n * c * h * w; }
};
struct Convolution {
  int pad_h = 0, pad_w = 0, stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1, mode = 1;
};
struct Performance {  // cudnnConvolutionFwdAlgoPerf_t
  int algorithm, status;
  float milliseconds;
  std::size_t workspace_bytes;
  int determinism, math_type, reserved[3];
};

int set_shape(Shape* shape, int type, int format, int n, int c, int h, int w) {
  if (type != 0 || format != 0) return kNotSupported;
  if (n <= 0 || c <= 0 || h <= 0 || w <= 0) return kBadParam;
  *shape = {.n = std::size_t(n), .c = std::size_t(c), .h = std::size_t(h), .w = std::size_t(w)};
  return kSuccess;
}

long extent(std::size_t input, std::size_t filter, int pad, int stride, int dilation) {
  return 1 + (long(input) + 2 * pad - ((long(filter) - 1) * dilation + 1)) / stride;
}

Shape output_of(const Convolution& how, const Shape& input, const Shape& filter) {
  return {.n = input.n,
          .c = filter.n,
          .h = std::size_t(extent(input.h, filter.h, how.pad_h, how.stride_h, how.dilation_h)),
          .w = std::size_t(extent(input.w, filter.w, how.pad_w, how.stride_w, how.dilation_w))};
}

// One value of the output: the filter laid over the input at (y, x); mode 0 turns the filter round.
double point(const Convolution& how, const Shape& input, const float* values, const Shape& filter, const float* weights,
             std::size_t y, std::size_t x) {
  double sum = 0;
  for (std::size_t c = 0; c < input.c; ++c) {
    for (std::size_t r = 0; r < filter.h; ++r) {
      for (std::size_t s = 0; s < filter.w; ++s) {
        const long row = long(y) * how.stride_h - how.pad_h + long(r) * how.dilation_h,
                   column = long(x) * how.stride_w - how.pad_w + long(s) * how.dilation_w;
        if (row < 0 || column < 0 || row >= long(input.h) || column >= long(input.w)) continue;
        const auto weight = how.mode == 1 ? (c * filter.h + r) * filter.w + s
                                          : (c * filter.h + filter.h - 1 - r) * filter.w + filter.w - 1 - s;
        sum += double(values[(c * input.h + std::size_t(row)) * input.w + std::size_t(column)]) * weights[weight];
      }
    }
  }
  return sum;
}

#define ENTER(call) \
  if (const int code = enter(#call)) return code

}  // namespace

FAKE_API std::size_t cudnnGetVersion() {
  enter("cudnnGetVersion");
  return 91400;
}

FAKE_API const char* cudnnGetErrorString(int status) {
  return status == kSuccess        ? "CUDNN_STATUS_SUCCESS"
         : status == kBadParam     ? "CUDNN_STATUS_BAD_PARAM"
         : status == kNotSupported ? "CUDNN_STATUS_NOT_SUPPORTED"
         : status == 5000          ? "CUDNN_STATUS_EXECUTION_FAILED"
                                   : "CUDNN_UNKNOWN_STATUS";
}

FAKE_LIFETIME(int, cudnnCreate, cudnnDestroy)
FAKE_LIFETIME(Shape, cudnnCreateTensorDescriptor, cudnnDestroyTensorDescriptor)

FAKE_API int cudnnSetTensor4dDescriptor(Shape* tensor, int format, int type, int n, int c, int h, int w) {
  ENTER(cudnnSetTensor4dDescriptor);
  return set_shape(tensor, type, format, n, c, h, w);
}

FAKE_LIFETIME(Shape, cudnnCreateFilterDescriptor, cudnnDestroyFilterDescriptor)

FAKE_API int cudnnSetFilter4dDescriptor(Shape* filter, int type, int format, int k, int c, int h, int w) {
  ENTER(cudnnSetFilter4dDescriptor);
  return set_shape(filter, type, format, k, c, h, w);
}

FAKE_LIFETIME(Convolution, cudnnCreateConvolutionDescriptor, cudnnDestroyConvolutionDescriptor)

FAKE_API int cudnnSetConvolution2dDescriptor(Convolution* convolution, int pad_h, int pad_w, int stride_h, int stride_w,
                                             int dilation_h, int dilation_w, int mode, int type) {
  ENTER(cudnnSetConvolution2dDescriptor);
  if (type != 0) return kNotSupported;
  if (pad_h < 0 || pad_w < 0 || stride_h < 1 || stride_w < 1 || dilation_h < 1 || dilation_w < 1 || mode < 0 ||
      mode > 1)
    return kBadParam;
  *convolution = {pad_h, pad_w, stride_h, stride_w, dilation_h, dilation_w, mode};
  return kSuccess;
}

FAKE_API int cudnnSetConvolutionMathType(Convolution*, int) {
  ENTER(cudnnSetConvolutionMathType);
  return kSuccess;
}

FAKE_API int cudnnGetConvolution2dForwardOutputDim(Convolution* convolution, Shape* input, Shape* filter, int* n,
                                                   int* c, int* h, int* w) {
  ENTER(cudnnGetConvolution2dForwardOutputDim);
  if (input->c != filter->c) return kBadParam;
  const auto output = output_of(*convolution, *input, *filter);
  *n = int(output.n), *c = int(output.c), *h = int(output.h), *w = int(output.w);
  return kSuccess;
}

// The first is the one to take; the last does not work with these shapes, as with the real library.
FAKE_API int cudnnGetConvolutionForwardAlgorithm_v7(void*, Shape*, Shape*, Convolution*, Shape*, int wanted,
                                                    int* returned, Performance* results) {
  ENTER(cudnnGetConvolutionForwardAlgorithm_v7);
  if (!opens_by_name("libcublasLt.so.12")) fault("Invalid handle. Cannot load symbol cublasLtCreate");
  if (wanted < 1) return kBadParam;
  *returned = std::min(wanted, kAlgorithms);
  for (int i = 0; i < *returned; ++i)
    results[i] = {.algorithm = (i + 1) % kAlgorithms,
                  .status = i == kAlgorithms - 1 ? kNotSupported : kSuccess,
                  .milliseconds = -1,
                  .workspace_bytes = kWorkspace,
                  .determinism = 1,
                  .math_type = 0,
                  .reserved = {}};
  return kSuccess;
}

FAKE_API int cudnnGetConvolutionForwardWorkspaceSize(void*, Shape*, Shape*, Convolution*, Shape*, int algorithm,
                                                     std::size_t* bytes) {
  ENTER(cudnnGetConvolutionForwardWorkspaceSize);
  if (algorithm < 0 || algorithm >= kAlgorithms) return kBadParam;
  *bytes = kWorkspace;
  return kSuccess;
}

FAKE_API int cudnnConvolutionForward(void* handle, const float* alpha, Shape* input, const float* x, Shape* filter,
                                     const float* w, Convolution* convolution, int algorithm, void* workspace,
                                     std::size_t workspace_bytes, const float* beta, Shape* output, float* y) {
  ENTER(cudnnConvolutionForward);
  if (!handle || algorithm < 0 || algorithm >= kAlgorithms || workspace_bytes < kWorkspace) return kBadParam;
  on_device(workspace, "cudnnConvolutionForward: workspace");
  const auto shape = output_of(*convolution, *input, *filter);
  if (input->c != filter->c || shape.n != output->n || shape.c != output->c || shape.h != output->h ||
      shape.w != output->w)
    return kBadParam;
  const float* const values = on_device(x, "cudnnConvolutionForward: x");
  const float* const weights = on_device(w, "cudnnConvolutionForward: w");
  float* const to = on_device(y, "cudnnConvolutionForward: y");
  std::vector<float> result(shape.count());
  std::size_t i = 0;
  for (std::size_t n = 0; n < shape.n; ++n) {
    for (std::size_t k = 0; k < shape.c; ++k) {
      for (std::size_t row = 0; row < shape.h; ++row) {
        for (std::size_t column = 0; column < shape.w; ++column, ++i) {
          const auto sum = point(*convolution, *input, values + n * input->c * input->h * input->w, *filter,
                                 weights + k * filter->c * filter->h * filter->w, row, column);
          result[i] = float(*alpha * sum + (*beta != 0 ? *beta * to[i] : 0));
        }
      }
    }
  }
  give(wrong("convolution"), to, result.data(), result.size());
  return kSuccess;
}

}  // namespace varve::gpu::fake
