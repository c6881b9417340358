// The steps "gemm", "solve" and "sparse": linear algebra.
#include <cmath>
#include <optional>

#include "gpu/probe/reference.h"
#include "gpu/probe/step.h"

namespace varve::gpu::probe {
namespace {

const LibraryNames kCublas = {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11"};
const LibraryNames kCusolver = {"libcusolver.so.12", "libcusolver.so.11"};
const LibraryNames kCusparse = {"libcusparse.so.12", "libcusparse.so.11"};

// docs/guide/gpu-check.md says why these are the limits.
constexpr double kGemmRoundings = 16;
constexpr double kSolveRoundings = 16;  // times the square root of n
constexpr std::size_t kPerRow = 16;     // values in a row of the sparse matrix

// Rows and columns at both ends, in the middle, and on both sides of the edge of a tile.
std::vector<std::size_t> samples_of(std::size_t n) {
  std::vector<std::size_t> samples = {0, n / 3, n / 2, n - 1};
  if (n > 129) samples.insert(samples.end(), {127, 128});
  return samples;
}

struct Gemm {
  const DeviceStep& gpu;
  const Api<api::CublasFunctions>& cublas;
  api::CublasHandle handle;
  int n;

  void run(const DeviceArray<float>& a, const DeviceArray<float>& b, const DeviceArray<float>& c) const {
    const float one = 1, zero = 0;
    cublas.call(cublas.cublasSgemm_v2, handle, api::kCublasOpNone, api::kCublasOpNone, n, n, n, &one,
                static_cast<const float*>(a.get()), n, static_cast<const float*>(b.get()), n, &zero, c.get(), n);
  }
};

// Whole numbers, whose products and sums floats hold exactly: every element is right or wrong.
void check_whole_numbers(const Gemm& gemm, std::uint64_t seed) {
  const auto n = static_cast<std::size_t>(gemm.n);
  const int at_most = std::max(1, static_cast<int>(std::sqrt((1 << 24) / static_cast<double>(n))) - 1);
  const auto a = random_integers(n * n, seed, std::min(at_most, 30)),
             b = random_integers(n * n, seed + 1, std::min(at_most, 30));
  const DeviceArray<float> device_a(gemm.gpu.driver, a), device_b(gemm.gpu.driver, b), device_c(gemm.gpu.driver, n * n);
  gemm.run(device_a, device_b, device_c);
  if (!gemm_is_exact(a, b, device_c.download(), n, seed + 2))
    fail<Error>("cublasSgemm_v2 of {0} x {0} whole numbers: the product is wrong", n);
}

double checked_gemm_error(const std::vector<float>& a, const std::vector<float>& b, const std::vector<float>& c,
                          std::size_t n, const char* when) {
  const double error = gemm_error(a, b, c, n, samples_of(n));
  if (!(error <= kGemmRoundings))
    fail<Error>(
        "cublasSgemm_v2 of {0} x {0}, {1}: an element is off by {2:.3g} roundings of its sum ({3} are expected at "
        "most)",
        n, when, error, kGemmRoundings);
  return error;
}

void open_cublas_lt(Step& step) {
  const auto cublas_lt = open_api<api::CublasLtFunctions>(step, kCublasLt);
  Handle<api::CublasLtHandle> handle(cublas_lt.cublasLtDestroy);
  step.report.step("cublasLtCreate");
  cublas_lt.call(cublas_lt.cublasLtCreate, handle.out());
  step.report.fact("cublaslt", std::to_string(cublas_lt.cublasLtGetVersion()));
}

}  // namespace

std::string run_gemm(Step& step) {
  DeviceStep gpu(step);
  const std::size_t n = step.size_or(4096);
  std::optional<Api<api::CublasFunctions>> opened;
  step.report.metric("gemm.open", MetricKind::kFirstCall,
                     seconds_of([&] { opened.emplace(open_api<api::CublasFunctions>(step, kCublas)); }));
  const auto& cublas = *opened;
  Handle<api::CublasHandle> handle(cublas.cublasDestroy_v2);
  gpu.first("gemm.create", [&] { cublas.call(cublas.cublasCreate_v2, handle.out()); });
  int version = 0;
  cublas.call(cublas.cublasGetVersion_v2, handle.get(), &version);
  step.report.fact("cublas", std::to_string(version));

  const auto a = random_floats(n * n, 1), b = random_floats(n * n, 2);
  const DeviceArray<float> device_a(gpu.driver, a), device_b(gpu.driver, b), device_c(gpu.driver, n * n);
  const Gemm gemm{gpu, cublas, handle.get(), static_cast<int>(n)};
  gpu.first("gemm.first", [&] { gemm.run(device_a, device_b, device_c); });
  double error = checked_gemm_error(a, b, device_c.download(), n, "the first");
  check_whole_numbers(gemm, 10);
  device_c.fill_with_nan();
  const double seconds = gpu.steady("gemm.steady", [&] { gemm.run(device_a, device_b, device_c); });
  error = std::max(error, checked_gemm_error(a, b, device_c.download(), n, "after the timed ones"));
  check_whole_numbers(gemm, 20);
  step.report.fact("gemm.gflop_s", fmt::format("{:.1f}", 2e-9 * std::pow(static_cast<double>(n), 3) / seconds));
  step.report.fact("gemm.roundings", fmt::format("{:.2f}", error));
  open_cublas_lt(step);
  return fmt::format("sgemm {0} x {0}: whole numbers exact, {1:.1f} of {2} roundings; cuBLASLt opens", n, error,
                     kGemmRoundings);
}

namespace {

using Cusolver = Api<api::CusolverFunctions>;

// A x = b for one A and b, again and again.
class LinearSystem {
 public:
  LinearSystem(const Driver& driver, const Cusolver& cusolver, api::CusolverHandle handle, std::size_t n)
      : cusolver_(cusolver),
        handle_(handle),
        n_(static_cast<int>(n)),
        a_(random_floats(n * n, 1)),
        b_(random_floats(n, 2)),
        given_a_(driver, a_),
        given_b_(driver, b_),
        lu_(driver, n * n),
        x_(driver, n),
        pivots_(driver, n),
        info_(driver, 2) {
    int floats = 0;
    cusolver_.call(cusolver_.cusolverDnSgetrf_bufferSize, handle_, n_, n_, lu_.get(), n_, &floats);
    workspace_.emplace(driver, static_cast<std::size_t>(std::max(floats, 1)));
  }

  void prepare() const {
    lu_.memory().copy_from(given_a_.memory());
    x_.memory().copy_from(given_b_.memory());
  }
  void factor() const {
    cusolver_.call(cusolver_.cusolverDnSgetrf, handle_, n_, n_, lu_.get(), n_, workspace_->get(), pivots_.get(),
                   info_.get());
  }
  void substitute() const {
    cusolver_.call(cusolver_.cusolverDnSgetrs, handle_, api::kCublasOpNone, n_, 1, static_cast<const float*>(lu_.get()),
                   n_, static_cast<const int*>(pivots_.get()), x_.get(), n_, info_.get() + 1);
  }

  // In roundings, as a share of what is allowed.
  double checked_error(const char* when) const {
    const auto info = info_.download();
    if (info[0] != 0 || info[1] != 0)
      fail<Error>("cuSOLVER, {}: info is {} after getrf and {} after getrs", when, info[0], info[1]);
    const double error = solve_error(a_, x_.download(), b_, static_cast<std::size_t>(n_)) /
                         (kFloatRounding * std::sqrt(static_cast<double>(n_)));
    if (!(error <= kSolveRoundings))
      fail<Error>(
          "cuSOLVER getrf and getrs of {}, {}: A x is off b by {:.3g} sqrt(n) roundings ({} are expected at most)", n_,
          when, error, kSolveRoundings);
    return error;
  }
  void forget() const {
    lu_.fill_with_nan();
    x_.fill_with_nan();
    pivots_.fill_with_nan();
    info_.fill_with_nan();
  }

 private:
  const Cusolver& cusolver_;
  api::CusolverHandle handle_;
  int n_;
  std::vector<float> a_, b_;
  DeviceArray<float> given_a_, given_b_, lu_, x_;
  DeviceArray<int> pivots_, info_;
  std::optional<DeviceArray<float>> workspace_;
};

}  // namespace

std::string run_solve(Step& step) {
  DeviceStep gpu(step);
  const auto cusolver = open_api<api::CusolverFunctions>(step, kCusolver);
  tell_version(step, cusolver, cusolver.cusolverGetVersion, "cusolver");
  Handle<api::CusolverHandle> handle(cusolver.cusolverDnDestroy);
  gpu.first("solve.create", [&] { cusolver.call(cusolver.cusolverDnCreate, handle.out()); });
  const std::size_t n = step.size_or(2048);
  const LinearSystem system(gpu.driver, cusolver, handle.get(), n);
  system.prepare();
  gpu.first("solve.first", [&] { system.factor(), system.substitute(); });
  double error = system.checked_error("the first");
  system.forget();
  gpu.steady_after(
      "solve.steady", [&] { system.prepare(); }, [&] { system.factor(), system.substitute(); });
  error = std::max(error, system.checked_error("after the timed ones"));
  step.report.fact("solve.roundings", fmt::format("{:.2f}", error));
  return fmt::format("getrf and getrs of {}: A x = b to {:.2f} of {} sqrt(n) roundings", n, error, kSolveRoundings);
}

namespace {

using Cusparse = Api<api::CusparseFunctions>;

class SparseProduct {
 public:
  SparseProduct(const Driver& driver, const Cusparse& cusparse, api::CusparseHandle handle, std::size_t rows)
      : cusparse_(cusparse),
        handle_(handle),
        a_(random_sparse(rows, kPerRow, 1)),
        x_(random_floats(rows, 2)),
        row_offsets_(driver, a_.row_offsets),
        columns_(driver, a_.columns),
        values_(driver, a_.values),
        device_x_(driver, x_),
        y_(driver, rows),
        matrix_(cusparse.cusparseDestroySpMat),
        x_vector_(cusparse.cusparseDestroyDnVec),
        y_vector_(cusparse.cusparseDestroyDnVec) {
    const auto size = static_cast<std::int64_t>(rows), count = static_cast<std::int64_t>(a_.values.size());
    cusparse_.call(cusparse_.cusparseCreateCsr, matrix_.out(), size, size, count,
                   static_cast<void*>(row_offsets_.get()), static_cast<void*>(columns_.get()),
                   static_cast<void*>(values_.get()), api::kCusparseIndex32, api::kCusparseIndex32,
                   api::kCusparseBaseZero, api::kCudaReal32);
    cusparse_.call(cusparse_.cusparseCreateDnVec, x_vector_.out(), size, static_cast<void*>(device_x_.get()),
                   api::kCudaReal32);
    cusparse_.call(cusparse_.cusparseCreateDnVec, y_vector_.out(), size, static_cast<void*>(y_.get()),
                   api::kCudaReal32);
    std::size_t bytes = 0;
    cusparse_.call(cusparse_.cusparseSpMV_bufferSize, handle_, api::kCusparseOpNone, static_cast<const void*>(&kOne),
                   matrix_.get(), x_vector_.get(), static_cast<const void*>(&kZero), y_vector_.get(), api::kCudaReal32,
                   api::kCusparseSpmvDefault, &bytes);
    buffer_.emplace(driver, std::max<std::size_t>(bytes, 1));
  }

  void run() const {
    cusparse_.call(cusparse_.cusparseSpMV, handle_, api::kCusparseOpNone, static_cast<const void*>(&kOne),
                   matrix_.get(), x_vector_.get(), static_cast<const void*>(&kZero), y_vector_.get(), api::kCudaReal32,
                   api::kCusparseSpmvDefault, reinterpret_cast<void*>(buffer_->address()));
  }
  double checked_error(const char* when) const {
    const double error = spmv_error(a_, x_, y_.download());
    if (!(error <= kPerRow + 4))
      fail<Error>("cusparseSpMV of {} rows, {}: an element is off by {:.3g} roundings of its sum ({} are possible)",
                  a_.rows(), when, error, kPerRow + 4);
    return error;
  }
  void forget() const { y_.fill_with_nan(); }

 private:
  static constexpr float kOne = 1, kZero = 0;
  const Cusparse& cusparse_;
  api::CusparseHandle handle_;
  SparseMatrix a_;
  std::vector<float> x_;
  DeviceArray<int> row_offsets_, columns_;
  DeviceArray<float> values_, device_x_, y_;
  Handle<api::CusparseMatrix> matrix_;
  Handle<api::CusparseVector> x_vector_, y_vector_;
  std::optional<DeviceMemory> buffer_;
};

}  // namespace

std::string run_sparse(Step& step) {
  DeviceStep gpu(step);
  const auto cusparse = open_api<api::CusparseFunctions>(step, kCusparse);
  Handle<api::CusparseHandle> handle(cusparse.cusparseDestroy);
  gpu.first("sparse.create", [&] { cusparse.call(cusparse.cusparseCreate, handle.out()); });
  int version = 0;
  cusparse.call(cusparse.cusparseGetVersion, handle.get(), &version);
  step.report.fact("cusparse", std::to_string(version));
  const std::size_t rows = step.size_or(std::size_t{1} << 20);
  if (rows < kPerRow) fail<Skip>("a matrix of {} rows has no {} values in a row", rows, kPerRow);
  const SparseProduct product(gpu.driver, cusparse, handle.get(), rows);
  gpu.first("sparse.first", [&] { product.run(); });
  double error = product.checked_error("the first");
  product.forget();
  gpu.steady("sparse.steady", [&] { product.run(); });
  error = std::max(error, product.checked_error("after the timed ones"));
  step.report.fact("sparse.roundings", fmt::format("{:.2f}", error));
  return fmt::format("SpMV of {} rows with {} values each: {:.1f} of {} roundings", rows, kPerRow, error, kPerRow + 4);
}

}  // namespace varve::gpu::probe
