#pragma once
// What the kernels are tried on, and what must come out: one table for the PTX in the probe, for the .cu program, and
// for the arithmetic of the host. Whole numbers below 2^24, which floats hold exactly, so results are equal or wrong.
// The totals were worked out by a program in another language (test_kernels.py does it again).

namespace varve::gpu::kernels {

// A number that looks random, the same everywhere.
constexpr unsigned scrambled(unsigned seed, unsigned i) {
  unsigned word = i * 2654435761u + seed * 40503u + 1u;
  word = (word ^ (word >> 16)) * 73244475u;
  word = (word ^ (word >> 16)) * 73244475u;
  return word ^ (word >> 16);
}

struct AxpyCase {
  unsigned count, threads, seed;  // threads a block; as many blocks as the count needs
  int a;
  long long total;  // of all results
};
constexpr int axpy_x(const AxpyCase& c, unsigned i) { return static_cast<int>(scrambled(c.seed, 2 * i) % 2001) - 1000; }
constexpr int axpy_y(const AxpyCase& c, unsigned i) {
  return static_cast<int>(scrambled(c.seed, 2 * i + 1) % 2001) - 1000;
}
constexpr int axpy_result(const AxpyCase& c, unsigned i) { return c.a * axpy_x(c, i) + axpy_y(c, i); }

struct SumCase {
  unsigned count, blocks, threads, seed;
  unsigned long long total;
};
constexpr unsigned sum_value(const SumCase& c, unsigned i) { return scrambled(c.seed, i); }

// One element, less than a warp, warps and one more, blocks that are not full, blocks that are no power of two, the
// largest block.
constexpr AxpyCase kAxpyCases[] = {
    {1, 32, 1, 3, -2473},
    {31, 32, 2, -7, -16310},
    {33, 32, 3, 5, 3021},
    {1000, 96, 4, 11, -127551},
    {1024, 1024, 5, -1, 8084},
    {4097, 256, 6, 0, 13495},
    {65537, 128, 7, 1000, 157923705},
};

// Nothing to add, one value for many threads, one thread for many values, odd blocks, totals above 32 bits.
constexpr SumCase kSumCases[] = {
    {0, 2, 64, 1, 0u},
    {1, 3, 128, 2, 678097989u},
    {1000, 1, 1, 3, 2114526639091u},
    {1023, 2, 33, 4, 2171432280451u},
    {4096, 4, 1024, 5, 8738138149228u},
    {5000, 7, 96, 6, 10707019218494u},
    {100000, 16, 256, 7, 215005043695981u},
};

}  // namespace varve::gpu::kernels
