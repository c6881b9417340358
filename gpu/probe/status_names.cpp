#include "gpu/probe/status_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

namespace varve::gpu::probe {
namespace {

struct Named {
  int status;
  const char* name;
};

// abi_test.cpp has the numbers from the headers.
constexpr Named kCublasNames[] = {{1, "not initialized"},       {3, "allocation failed"}, {7, "invalid value"},
                                  {8, "architecture mismatch"}, {11, "mapping error"},    {13, "execution failed"},
                                  {14, "internal error"},       {15, "not supported"},    {16, "license error"}};
constexpr Named kCufftNames[] = {{1, "invalid plan"},
                                 {2, "allocation failed"},
                                 {3, "invalid type"},
                                 {4, "invalid value"},
                                 {5, "internal error"},
                                 {6, "execution failed"},
                                 {7, "setup failed"},
                                 {8, "invalid size"},
                                 {10, "incomplete parameter list"},
                                 {11, "invalid device"},
                                 {13, "no workspace"},
                                 {14, "no such transform"},
                                 {16, "not supported"},
                                 {17, "a library that it opens is missing"},
                                 {18, "NVRTC failed"},
                                 {19, "nvJitLink failed"}};
constexpr Named kCusolverNames[] = {
    {1, "not initialized"}, {2, "allocation failed"}, {3, "invalid value"},  {4, "architecture mismatch"},
    {5, "mapping error"},   {6, "execution failed"},  {7, "internal error"}, {8, "matrix type not supported"},
    {9, "not supported"},   {10, "zero pivot"}};
constexpr Named kCurandNames[] = {{100, "version mismatch"},
                                  {101, "not initialized"},
                                  {102, "allocation failed"},
                                  {103, "type error"},
                                  {104, "out of range"},
                                  {105, "length not multiple"},
                                  {106, "double precision required"},
                                  {201, "launch failure"},
                                  {202, "preexisting failure"},
                                  {203, "initialization failed"},
                                  {204, "architecture mismatch"},
                                  {999, "internal error"}};

std::string from_table(std::span<const Named> names, int status) {
  const auto found = std::ranges::find(names, status, &Named::status);
  return found == names.end() ? fmt::format("status {}", status) : fmt::format("status {}, {}", status, found->name);
}

std::string with_number(const char* name, int status) {
  return name ? fmt::format("{}, {}", status, name) : fmt::format("status {}", status);
}

}  // namespace

std::string error_name(const api::DriverFunctions& driver, int status) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (driver.cuGetErrorName(status, &name) != api::kCudaSuccess) name = nullptr;
  if (driver.cuGetErrorString && driver.cuGetErrorString(status, &text) != api::kCudaSuccess) text = nullptr;
  return with_number(name, status) + (text ? fmt::format(": {}", text) : "");
}
std::string error_name(const api::NvmlFunctions& nvml, int status) {
  return with_number(nvml.nvmlErrorString(status), status);
}
std::string error_name(const api::CudartFunctions&, int status) { return fmt::format("status {}", status); }
std::string error_name(const api::NvrtcFunctions& nvrtc, int status) {
  return with_number(nvrtc.nvrtcGetErrorString(status), status);
}
std::string error_name(const api::CublasFunctions& cublas, int status) {
  return cublas.cublasGetStatusName ? with_number(cublas.cublasGetStatusName(status), status)
                                    : from_table(kCublasNames, status);
}
std::string error_name(const api::CublasLtFunctions&, int status) { return from_table(kCublasNames, status); }
std::string error_name(const api::CudnnFunctions& cudnn, int status) {
  return with_number(cudnn.cudnnGetErrorString(status), status);
}
std::string error_name(const api::CufftFunctions&, int status) { return from_table(kCufftNames, status); }
std::string error_name(const api::CusolverFunctions&, int status) { return from_table(kCusolverNames, status); }
std::string error_name(const api::CusparseFunctions& cusparse, int status) {
  return with_number(cusparse.cusparseGetErrorName(status), status);
}
std::string error_name(const api::CurandFunctions&, int status) { return from_table(kCurandNames, status); }
std::string error_name(const api::NcclFunctions& nccl, int status) {
  return with_number(nccl.ncclGetErrorString(status), status);
}

}  // namespace varve::gpu::probe
