// Runs inside a session on the image under test, with no GPU and no driver: opens each library of a list with RTLD_NOW in a process of its own, and lets NVRTC compile one kernel to machine code.
//   cuda_check LIST   -> lines "opened PATH", "failed PATH: why", "cubin BYTES" or "nvrtc: why"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char kKernel[] = "extern \"C\" __global__ void axpy(float a, const float* x, float* y) { int i = blockIdx.x * blockDim.x + threadIdx.x; y[i] = a * x[i] + y[i]; }";

static void in_own_process(int (*action)(const char*), const char* path) {
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    const int status = action(path);
    fflush(stdout);
    _exit(status);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) exit(1);
  if (WIFSIGNALED(status)) printf("failed %s: signal %d\n", path, WTERMSIG(status));
}

static int open_library(const char* path) {
  if (dlopen(path, RTLD_NOW | RTLD_LOCAL) == NULL) {
    printf("failed %s: %s\n", path, dlerror());
  } else {
    printf("opened %s\n", path);
  }
  return 0;
}

static int compile_kernel(const char* path) {
  void* nvrtc = dlopen(path, RTLD_NOW);
  if (nvrtc == NULL) return printf("nvrtc: %s\n", dlerror()), 0;
  void* program = NULL;
  int (*create)(void**, const char*, const char*, int, const char**, const char**) = dlsym(nvrtc, "nvrtcCreateProgram");
  int (*compile)(void*, int, const char**) = dlsym(nvrtc, "nvrtcCompileProgram");
  int (*cubin_size)(void*, size_t*) = dlsym(nvrtc, "nvrtcGetCUBINSize");
  int (*cubin)(void*, char*) = dlsym(nvrtc, "nvrtcGetCUBIN");
  if (create == NULL || compile == NULL || cubin_size == NULL || cubin == NULL) return printf("nvrtc: %s lacks a function\n", path), 0;
  const char* options[] = {"--gpu-architecture=sm_75"};
  int status = create(&program, kKernel, "axpy.cu", 0, NULL, NULL);
  if (status == 0) status = compile(program, 1, options);
  size_t bytes = 0;
  if (status == 0) status = cubin_size(program, &bytes);
  if (status != 0 || bytes < 4) return printf("nvrtc: error %d\n", status), 0;
  char* code = malloc(bytes);
  status = cubin(program, code);
  if (status != 0 || memcmp(code, "\177ELF", 4) != 0) return printf("nvrtc: no cubin (error %d)\n", status), 0;
  printf("cubin %zu\n", bytes);
  return 0;
}

int main(int argc, char** argv) {
  FILE* list = argc == 2 ? fopen(argv[1], "r") : NULL;
  if (list == NULL) return 2;
  char path[4096], nvrtc[4096] = "";
  while (fgets(path, sizeof path, list) != NULL) {
    path[strcspn(path, "\n")] = '\0';
    in_own_process(open_library, path);
    const char* name = strrchr(path, '/');
    if (name != NULL && strncmp(name, "/libnvrtc.so.", 13) == 0) strcpy(nvrtc, path);
  }
  if (nvrtc[0] != '\0') in_own_process(compile_kernel, nvrtc);
  return 0;
}
