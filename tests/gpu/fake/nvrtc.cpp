// libnvrtc.so.12. It compiles nothing: its PTX names the check's kernels, which the fake driver knows. What else a
// compiler does is imitated: options, a log, errors.
#include <algorithm>
#include <array>
#include <regex>
#include <string>

#include "tests/gpu/fake/behaviour.h"

namespace varve::gpu::fake {
namespace {

enum Result : int {
  kSuccess = 0,
  kInvalidInput = 3,
  kInvalidProgram = 4,
  kInvalidOption = 5,
  kCompilation = 6,
  kBuiltinOperation = 7
};
constexpr std::array kArchitectures = {50, 60, 61, 70, 75, 80, 86, 89, 90, 100, 120};

struct Program {
  std::string source, log, ptx, cubin;
};

// A file of machine code begins as every ELF file does, with the number of NVIDIA's machines; the fake driver knows it
// by its words and reads PTX behind them.
std::string cubin_of(const std::string& ptx) {
  std::string head =
      "\x7f"
      "ELF";
  head.resize(32, ' ');
  head += "of the fake compiler";
  head.resize(64, ' ');
  head[18] = static_cast<char>(190);
  return head + ptx;
}

// The PTX of all kernels in a source; empty where there are none, or others than those of the check.
std::string ptx_of(const std::string& source, int sm) {
  static const std::regex kKernel(R"(extern\s+"C"\s+__global__\s+void\s+(\w+)\s*\()");
  std::string entries;
  for (std::sregex_iterator kernel(source.begin(), source.end(), kKernel), end; kernel != end; ++kernel) {
    if ((*kernel)[1] != "axpy" && (*kernel)[1] != "sum") return "";
    entries += ".visible .entry " + (*kernel)[1].str() + "() { ret; }\n";
  }
  return entries.empty() ? "" : ".version 6.0\n.target sm_" + std::to_string(sm) + "\n.address_size 64\n" + entries;
}

// The number in --gpu-architecture=sm_90 or compute_90; 52 where nothing is said, 0 if that makes no sense.
int architecture(int count, const char* const* options) {
  static const std::regex kOption(R"((?:--gpu-architecture|-arch)=(?:sm|compute)_(\d+)a?)");
  int found = 52;
  for (int i = 0; i < count; ++i) {
    std::cmatch match;
    if (std::regex_match(options[i], match, kOption))
      found = std::stoi(match[1]);
    else if (std::string_view(options[i]).starts_with("--gpu-architecture") || options[i][0] != '-')
      return 0;
  }
  return found == 52 || std::find(kArchitectures.begin(), kArchitectures.end(), found) != kArchitectures.end() ? found
                                                                                                               : 0;
}

int give_text(const std::string& text, char* to) {
  std::memcpy(to, text.c_str(), text.size() + 1);
  return kSuccess;
}

}  // namespace

FAKE_API int nvrtcVersion(int* major, int* minor) {
  if (const int code = enter("nvrtcVersion")) return code;
  *major = 12, *minor = 8;
  return kSuccess;
}

FAKE_API const char* nvrtcGetErrorString(int code) {
  static constexpr std::array kTexts = {"NVRTC_SUCCESS",
                                        "NVRTC_ERROR_OUT_OF_MEMORY",
                                        "NVRTC_ERROR_PROGRAM_CREATION_FAILURE",
                                        "NVRTC_ERROR_INVALID_INPUT",
                                        "NVRTC_ERROR_INVALID_PROGRAM",
                                        "NVRTC_ERROR_INVALID_OPTION",
                                        "NVRTC_ERROR_COMPILATION",
                                        "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE"};
  return code >= 0 && std::size_t(code) < kTexts.size() ? kTexts[std::size_t(code)] : "NVRTC_ERROR unknown";
}

FAKE_API int nvrtcGetNumSupportedArchs(int* count) {
  if (const int code = enter("nvrtcGetNumSupportedArchs")) return code;
  *count = int(kArchitectures.size());
  return kSuccess;
}

FAKE_API int nvrtcGetSupportedArchs(int* architectures) {
  if (const int code = enter("nvrtcGetSupportedArchs")) return code;
  std::copy(kArchitectures.begin(), kArchitectures.end(), architectures);
  return kSuccess;
}

FAKE_API int nvrtcCreateProgram(Program** program, const char* source, const char*, int headers, const char* const*,
                                const char* const*) {
  if (const int code = enter("nvrtcCreateProgram")) return code;
  if (headers) return kInvalidInput;
  *program = new Program{.source = source, .log = {}, .ptx = {}, .cubin = {}};
  return kSuccess;
}

FAKE_API int nvrtcCompileProgram(Program* program, int count, const char* const* options) {
  if (const int code = enter("nvrtcCompileProgram")) return code;
  if (!opens_by_name("libnvrtc-builtins.so.12.8"))
    return program->log = "nvrtc: error: failed to open libnvrtc-builtins.so.12.8.\n", kBuiltinOperation;
  const int sm = architecture(count, options);
  if (!sm) return program->log = "nvrtc: error: invalid value for --gpu-architecture (-arch)\n", kInvalidOption;
  program->ptx = ptx_of(program->source, sm);
  if (program->ptx.empty()) {
    program->log = "fake.cu(1): error: kernels that the fake compiler does not know, or none\n";
    return kCompilation;
  }
  program->cubin = cubin_of(program->ptx);
  if (const auto how = wrong("compile"); how != Wrong::kNo) {
    program->cubin[1] = '?';
    if (how == Wrong::kIdle) program->cubin.clear(), program->ptx.clear();
  }
  return kSuccess;
}

FAKE_API int nvrtcGetProgramLogSize(Program* program, std::size_t* bytes) {
  if (const int code = enter("nvrtcGetProgramLogSize")) return code;
  *bytes = program->log.size() + 1;
  return kSuccess;
}

FAKE_API int nvrtcGetProgramLog(Program* program, char* log) {
  if (const int code = enter("nvrtcGetProgramLog")) return code;
  return give_text(program->log, log);
}

FAKE_API int nvrtcGetPTXSize(Program* program, std::size_t* bytes) {
  if (const int code = enter("nvrtcGetPTXSize")) return code;
  *bytes = program->ptx.empty() ? 0 : program->ptx.size() + 1;
  return program->ptx.empty() ? kInvalidProgram : kSuccess;
}

FAKE_API int nvrtcGetPTX(Program* program, char* ptx) {
  if (const int code = enter("nvrtcGetPTX")) return code;
  return give_text(program->ptx, ptx);
}

// Its size is without a zero at the end, as it is no text; the fake one is text, and the driver needs to find its end:
// so the zero is part of it.
FAKE_API int nvrtcGetCUBINSize(Program* program, std::size_t* bytes) {
  if (const int code = enter("nvrtcGetCUBINSize")) return code;
  *bytes = program->cubin.empty() ? 0 : program->cubin.size() + 1;
  return kSuccess;
}

FAKE_API int nvrtcGetCUBIN(Program* program, char* cubin) {
  if (const int code = enter("nvrtcGetCUBIN")) return code;
  return program->cubin.empty() ? int(kInvalidProgram) : give_text(program->cubin, cubin);
}

FAKE_API int nvrtcDestroyProgram(Program** program) {
  if (const int code = enter("nvrtcDestroyProgram")) return code;
  delete *program;
  *program = nullptr;
  return kSuccess;
}

}  // namespace varve::gpu::fake
