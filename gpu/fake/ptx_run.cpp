#include <algorithm>
#include <bit>
#include <cmath>
#include <span>
#include <stdexcept>

#include "gpu/fake/ptx.h"

namespace varve::gpu::fake::ptx {
namespace {

constexpr std::uint64_t kMaxSteps = 10'000'000;  // of one thread: behind that it never ends
constexpr std::uint64_t kSharedBase = std::uint64_t{0x5B}
                                      << 56;  // generic addresses of shared memory; no device memory begins so

struct Thread {
  std::array<std::uint32_t, 3> index{};
  std::vector<std::uint64_t> registers;
  std::size_t at = 0;
  std::uint64_t steps = 0;
  bool ended = false;
};

double as_double(std::uint64_t bits, Type type) {
  if (type.kind == Kind::kFloat)
    return type.bytes == 8 ? std::bit_cast<double>(bits) : double(std::bit_cast<float>(std::uint32_t(bits)));
  if (type.kind != Kind::kSigned) return double(bits);
  return double(std::int64_t(bits));
}

// Registers hold a value widened to 64 bits by its type.
std::uint64_t widened(std::uint64_t bits, Type type) {
  if (type.bytes >= 8) return bits;
  const unsigned unused = 64 - 8 * type.bytes;
  return type.kind == Kind::kSigned ? std::uint64_t(std::int64_t(bits << unused) >> unused) : bits << unused >> unused;
}

std::uint64_t from_double(double value, Type type) {
  if (type.kind == Kind::kFloat)
    return type.bytes == 8 ? std::bit_cast<std::uint64_t>(value) : std::bit_cast<std::uint32_t>(float(value));
  return widened(type.kind == Kind::kSigned ? std::uint64_t(std::int64_t(value)) : std::uint64_t(value), type);
}

class Block {
 public:
  Block(const Kernel& kernel, const Launch& launch, std::span<const std::byte> parameters,
        std::array<std::uint32_t, 3> index, bool& spoiled)
      : kernel_(kernel),
        launch_(launch),
        parameters_(parameters),
        index_(index),
        shared_(kernel.shared_bytes + launch.dynamic_shared),
        spoiled_(spoiled) {}

  void run() {
    std::vector<Thread> threads;
    for (std::uint32_t z = 0; z < launch_.block[2]; ++z) {
      for (std::uint32_t y = 0; y < launch_.block[1]; ++y) {
        for (std::uint32_t x = 0; x < launch_.block[0]; ++x)
          threads.push_back({.index = {x, y, z}, .registers = std::vector<std::uint64_t>(kernel_.registers)});
      }
    }
    for (bool any = true; any;) {  // from barrier to barrier
      any = false;
      for (auto& thread : threads) {
        if (!thread.ended) proceed(thread);
        any = any || !thread.ended;
      }
    }
  }

 private:
  const Kernel& kernel_;
  const Launch& launch_;
  std::span<const std::byte> parameters_;
  std::array<std::uint32_t, 3> index_;
  std::vector<std::byte> shared_;
  bool& spoiled_;

  void proceed(Thread& thread) {
    while (!thread.ended) {
      if (thread.at >= kernel_.code.size()) throw std::runtime_error("a thread ran behind the kernel's end");
      if (++thread.steps > kMaxSteps) throw std::runtime_error("a thread of the kernel does not end");
      const auto& instruction = kernel_.code[thread.at++];
      if (instruction.guard >= 0 && bool(thread.registers[std::size_t(instruction.guard)]) == instruction.guard_negated)
        continue;
      switch (instruction.op) {
        case Op::kBar:
          return;
        case Op::kRet:
          thread.ended = true;
          break;
        case Op::kBra:
          thread.at = instruction.target;
          break;
        case Op::kLd:
          load(thread, instruction);
          break;
        case Op::kSt:
          store(thread, instruction);
          break;
        case Op::kAtom:
        case Op::kRed:
          atomic(thread, instruction);
          break;
        default:
          set(thread, instruction, compute(thread, instruction));
      }
    }
  }

  std::uint64_t special(const Thread& thread, std::uint32_t which) const {
    const auto axis = which % 3;
    if (which < 3) return thread.index[axis];
    if (which < 6) return launch_.block[axis];
    if (which < 9) return index_[axis];
    if (which < 12) return launch_.grid[axis];
    return thread.index[0] % 32;
  }

  std::uint64_t value(const Thread& thread, const Operand& operand, Type type) const {
    std::uint64_t bits = operand.value;
    if (operand.form == Operand::Form::kRegister) bits = thread.registers[operand.index];
    if (operand.form == Operand::Form::kSpecial) bits = special(thread, operand.index);
    if (operand.form == Operand::Form::kSymbol) {
      const auto found = kernel_.shared.find(operand.symbol);
      if (found == kernel_.shared.end()) throw std::runtime_error(operand.symbol + " is no value");
      bits = kSharedBase + found->second;
    }
    return widened(bits, type);
  }

  static void set(Thread& thread, const Instruction& instruction, std::uint64_t bits) {
    const auto& to = instruction.operands.at(0);
    if (to.form != Operand::Form::kRegister)
      throw std::runtime_error(instruction.name + ": the result needs a register");
    thread.registers[to.index] = bits;
  }

  void* place(const Thread& thread, const Instruction& instruction, const Operand& operand, std::size_t bytes) {
    auto address = value(thread, operand, {.kind = Kind::kUnsigned, .bytes = 8});
    if (operand.form != Operand::Form::kImmediate) address += operand.value;
    if (address % bytes) throw std::runtime_error(instruction.name + ": an address that is not aligned");
    if (instruction.shared || (address >> 56) == (kSharedBase >> 56)) {
      const auto offset = address & 0xFFFF'FFFF;
      if (offset + bytes > shared_.size())
        throw std::runtime_error(instruction.name + ": behind the end of shared memory");
      return shared_.data() + offset;
    }
    return launch_.address(address, bytes);
  }

  void load(Thread& thread, const Instruction& instruction) {
    const auto& from = instruction.operands.at(1);
    std::uint64_t bits = 0;
    if (instruction.parameter) {
      const auto [offset, bytes] = kernel_.parameters.at(from.symbol);
      if (from.value + instruction.type.bytes > bytes)
        throw std::runtime_error(instruction.name + ": behind the end of parameter " + from.symbol);
      std::memcpy(&bits, parameters_.data() + offset + from.value, instruction.type.bytes);
    } else {
      std::memcpy(&bits, place(thread, instruction, from, instruction.type.bytes), instruction.type.bytes);
    }
    set(thread, instruction, widened(bits, instruction.type));
  }

  void store(Thread& thread, const Instruction& instruction) {
    auto bits = value(thread, instruction.operands.at(1), instruction.type);
    if (!instruction.shared) bits = spoiled(bits, instruction.type);
    std::memcpy(place(thread, instruction, instruction.operands[0], instruction.type.bytes), &bits,
                instruction.type.bytes);
  }

  std::uint64_t spoiled(std::uint64_t bits, Type type) {
    if (launch_.spoil == Wrong::kZero) return 0;
    if (launch_.spoil == Wrong::kNan) return ~std::uint64_t{0};
    if (launch_.spoil != Wrong::kFlip || spoiled_) return bits;
    spoiled_ = true;
    return bits ^ std::uint64_t{1} << (type.bytes == 8 ? 51 : type.bytes == 4 ? 22 : 0);
  }

  void atomic(Thread& thread, const Instruction& instruction) {
    const bool returns = instruction.op == Op::kAtom;
    void* const to = place(thread, instruction, instruction.operands.at(returns ? 1 : 0), instruction.type.bytes);
    std::uint64_t old = 0;
    std::memcpy(&old, to, instruction.type.bytes);
    const auto sum =
        add(old, value(thread, instruction.operands.at(returns ? 2 : 1), instruction.type), instruction.type);
    const auto bits = instruction.shared ? sum : spoiled(sum, instruction.type);
    std::memcpy(to, &bits, instruction.type.bytes);
    if (returns) set(thread, instruction, widened(old, instruction.type));
  }

  static std::uint64_t add(std::uint64_t a, std::uint64_t b, Type type) {
    if (type.kind != Kind::kFloat) return widened(a + b, type);
    if (type.bytes == 8) return std::bit_cast<std::uint64_t>(std::bit_cast<double>(a) + std::bit_cast<double>(b));
    return std::bit_cast<std::uint32_t>(std::bit_cast<float>(std::uint32_t(a)) +
                                        std::bit_cast<float>(std::uint32_t(b)));
  }

  std::uint64_t compute(const Thread& thread, const Instruction& instruction) const {
    const auto type = instruction.type;
    const auto in = [&](std::size_t n, Type as) {
      return n < instruction.operands.size() ? value(thread, instruction.operands[n], as) : 0;
    };
    switch (instruction.op) {
      case Op::kMov:
        return in(1, type);
      case Op::kCvt:
        return convert(in(1, instruction.from), instruction);
      case Op::kSelp:
        return in(3, {.kind = Kind::kPredicate, .bytes = 1}) ? in(1, type) : in(2, type);
      case Op::kSetp:
        return compare(in(1, type), in(2, type), instruction);
      case Op::kShl:
      case Op::kShr:
        return shifted(in(1, type), in(2, {.kind = Kind::kUnsigned, .bytes = 4}), instruction);
      default:
        break;
    }
    if (type.kind == Kind::kFloat) return of_floats(instruction, in(1, type), in(2, type), in(3, type));
    if (instruction.op == Op::kMul || instruction.op == Op::kMad) {
      return multiplied(instruction, in(1, type), in(2, type), in(3, product_type(instruction)));
    }
    return of_integers(instruction, in(1, type), in(2, type));
  }

  static std::uint64_t shifted(std::uint64_t a, std::uint64_t by, const Instruction& instruction) {
    const auto type = instruction.type;
    const bool keeps_sign = instruction.op == Op::kShr && type.kind == Kind::kSigned;
    if (by >= type.bytes * 8u) return keeps_sign && std::int64_t(a) < 0 ? widened(~std::uint64_t{0}, type) : 0;
    if (instruction.op == Op::kShl) return widened(a << by, type);
    return keeps_sign ? widened(std::uint64_t(std::int64_t(a) >> by), type) : a >> by;
  }

  static Type product_type(const Instruction& instruction) {
    const auto type = instruction.type;
    return {.kind = type.kind, .bytes = std::uint8_t(instruction.wide ? type.bytes * 2 : type.bytes)};
  }

  static std::uint64_t multiplied(const Instruction& instruction, std::uint64_t a, std::uint64_t b, std::uint64_t c) {
    const auto product = instruction.high ? (a * b) >> (8 * instruction.type.bytes) : a * b;
    return widened(product + (instruction.op == Op::kMad ? c : 0), product_type(instruction));
  }

  static std::uint64_t of_integers(const Instruction& instruction, std::uint64_t a, std::uint64_t b) {
    const auto type = instruction.type;
    const bool is_signed = type.kind == Kind::kSigned;
    const auto x = std::int64_t(a), y = std::int64_t(b);
    switch (instruction.op) {
      case Op::kAdd:
        return widened(a + b, type);
      case Op::kSub:
        return widened(a - b, type);
      case Op::kAnd:
        return a & b;
      case Op::kOr:
        return a | b;
      case Op::kXor:
        return a ^ b;
      case Op::kNot:
        return widened(~a, type);
      case Op::kNeg:
        return widened(~a + 1, type);
      case Op::kMin:
        return is_signed ? std::uint64_t(std::min(x, y)) : std::min(a, b);
      case Op::kMax:
        return is_signed ? std::uint64_t(std::max(x, y)) : std::max(a, b);
      case Op::kDiv:
        if (b) return is_signed ? std::uint64_t(x / y) : a / b;
        break;
      case Op::kRem:
        if (b) return is_signed ? std::uint64_t(x % y) : a % b;
        break;
      default:
        break;
    }
    throw std::runtime_error("cannot run " + instruction.name);
  }

  static std::uint64_t of_floats(const Instruction& instruction, std::uint64_t a, std::uint64_t b, std::uint64_t c) {
    if (instruction.type.bytes == 8)
      return std::bit_cast<std::uint64_t>(
          arithmetic(instruction, std::bit_cast<double>(a), std::bit_cast<double>(b), std::bit_cast<double>(c)));
    const auto narrow = [](std::uint64_t bits) { return std::bit_cast<float>(std::uint32_t(bits)); };
    return std::bit_cast<std::uint32_t>(arithmetic(instruction, narrow(a), narrow(b), narrow(c)));
  }

  template <typename T>
  static T arithmetic(const Instruction& instruction, T a, T b, T c) {
    switch (instruction.op) {
      case Op::kAdd:
        return a + b;
      case Op::kSub:
        return a - b;
      case Op::kMul:
        return a * b;
      case Op::kFma:
      case Op::kMad:
        return std::fma(a, b, c);
      case Op::kDiv:
        return a / b;
      case Op::kNeg:
        return -a;
      case Op::kAbs:
        return std::abs(a);
      case Op::kMin:
        return std::fmin(a, b);
      case Op::kMax:
        return std::fmax(a, b);
      case Op::kSqrt:
        return std::sqrt(a);
      case Op::kRcp:
        return 1 / a;
      default:
        break;
    }
    throw std::runtime_error("cannot run " + instruction.name);
  }

  static std::uint64_t convert(std::uint64_t bits, const Instruction& instruction) {
    const bool from_float = instruction.from.kind == Kind::kFloat, to_float = instruction.type.kind == Kind::kFloat;
    if (!from_float && !to_float) return widened(bits, instruction.type);
    if (from_float && !to_float)
      return from_double(instruction.nearest ? std::nearbyint(as_double(bits, instruction.from))
                                             : std::trunc(as_double(bits, instruction.from)),
                         instruction.type);
    return from_double(as_double(bits, instruction.from), instruction.type);
  }

  static std::uint64_t compare(std::uint64_t a, std::uint64_t b, const Instruction& instruction) {
    const auto decide = [&](auto x, auto y) {
      switch (instruction.compare) {
        case Compare::kEqual:
          return x == y;
        case Compare::kNot:
          return x != y;
        case Compare::kLess:
          return x < y;
        case Compare::kLessOrEqual:
          return x <= y;
        case Compare::kGreater:
          return x > y;
        default:
          return x >= y;
      }
    };
    if (instruction.type.kind == Kind::kFloat)
      return decide(as_double(a, instruction.type), as_double(b, instruction.type));
    if (instruction.type.kind == Kind::kSigned) return decide(std::int64_t(a), std::int64_t(b));
    return decide(a, b);
  }
};

}  // namespace

void run(const Kernel& kernel, const Launch& launch, void* const* parameters) {
  std::vector<std::byte> values(kernel.parameter_bytes);
  for (std::size_t i = 0; i < kernel.parameter_order.size(); ++i) {
    const auto [offset, bytes] = kernel.parameter_order[i];
    std::memcpy(values.data() + offset, on_host(parameters[i], "a kernel's parameter"), bytes);
  }
  bool spoiled = false;
  for (std::uint32_t z = 0; z < launch.grid[2]; ++z) {
    for (std::uint32_t y = 0; y < launch.grid[1]; ++y) {
      for (std::uint32_t x = 0; x < launch.grid[0]; ++x) Block(kernel, launch, values, {x, y, z}, spoiled).run();
    }
  }
}

}  // namespace varve::gpu::fake::ptx
