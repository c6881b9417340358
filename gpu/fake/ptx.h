#pragma once
// Runs PTX on the host: enough of its instructions for small kernels, thread by thread, with shared memory, barriers
// and atomic additions.
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "gpu/fake/behaviour.h"

namespace varve::gpu::fake::ptx {

enum class Kind : std::uint8_t { kBits, kUnsigned, kSigned, kFloat, kPredicate };
struct Type {
  Kind kind = Kind::kBits;
  std::uint8_t bytes = 4;
};

struct Operand {
  enum class Form : std::uint8_t { kRegister, kImmediate, kSpecial, kSymbol } form = Form::kImmediate;
  std::uint32_t index = 0;  // of the register; of a special one: 3 x {tid, ntid, ctaid, nctaid} + axis, 12: lane
  std::uint64_t value = 0;  // immediate, or offset behind the register or symbol in [brackets]
  std::string symbol;       // parameter, shared array or label
};

enum class Op : std::uint8_t {
  kBar,
  kRet,
  kBra,
  kLd,
  kSt,
  kAtom,
  kRed,
  kMov,
  kCvt,
  kSelp,
  kSetp,
  kAdd,
  kSub,
  kMul,
  kMad,
  kFma,
  kDiv,
  kRem,
  kMin,
  kMax,
  kAnd,
  kOr,
  kXor,
  kNot,
  kNeg,
  kAbs,
  kSqrt,
  kRcp,
  kShl,
  kShr
};
enum class Compare : std::uint8_t { kEqual, kNot, kLess, kLessOrEqual, kGreater, kGreaterOrEqual };

struct Instruction {
  std::string name;  // "add.f32" as it was written, for messages
  Op op = Op::kRet;
  bool parameter = false, shared = false, wide = false, high = false, nearest = false;  // of ld, st, mul, mad, cvt
  Compare compare = Compare::kEqual;                                                    // of setp
  Type type, from;  // the last type; where there are two, type is of the result
  std::vector<Operand> operands;
  std::size_t target = 0;  // of a branch
  int guard = -1;          // register of the predicate
  bool guard_negated = false;
};

struct Kernel {
  std::map<std::string, std::pair<std::size_t, std::size_t>> parameters;  // name -> offset, size
  std::vector<std::pair<std::size_t, std::size_t>> parameter_order;
  std::size_t parameter_bytes = 0;
  std::map<std::string, std::size_t> shared;  // name -> offset
  std::size_t shared_bytes = 0;
  std::size_t registers = 0;
  std::vector<Instruction> code;
};

// Throws std::runtime_error on text that is no PTX, that this does not know, or that is for a newer device than `sm`.
std::map<std::string, Kernel> parse(const std::string& text, int sm);

struct Launch {
  std::array<std::uint32_t, 3> grid{1, 1, 1}, block{1, 1, 1};
  std::size_t dynamic_shared = 0;
  std::function<void*(std::uint64_t, std::size_t)> address;  // device address and size -> host, or ends the process
  Wrong spoil = Wrong::kNo;                                  // the first value stored (flip), or all of them
};
// Throws std::runtime_error where a thread does what cannot be run: an unknown instruction, shared memory out of
// bounds, no end.
void run(const Kernel& kernel, const Launch& launch, void* const* parameters);

}  // namespace varve::gpu::fake::ptx
