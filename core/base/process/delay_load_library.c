/* Functions that need all that a stand-in must keep of a call. */
#include <stdarg.h>

#define JOINED(prefix, name) prefix##_##name
#define NAMED(prefix, name) JOINED(prefix, name)

long NAMED(PREFIX, integers)(long a, long b, long c, long d, long e, long f, long g, long h) {
  return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h;
}

double NAMED(PREFIX, reals)(double a, double b, double c, double d, double e, double f, double g, double h, double i) {
  return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + 9 * i;
}

double NAMED(PREFIX, any)(int count, ...) {
  double sum = 0;
  va_list values;
  va_start(values, count);
  for (int i = 0; i < count; ++i) sum += i % 2 ? va_arg(values, double) : va_arg(values, long);
  va_end(values);
  return sum;
}

struct Pair {
  long first;
  double second;
};
struct Pair NAMED(PREFIX, pair)(long first, double second) {
  const struct Pair pair = {first, second};
  return pair;
}
