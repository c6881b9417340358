#pragma once
// How the lists of C functions beside this file are used. A list is a macro that calls F(name, result, parameters...)
// once for each function that the probe calls; from the one list come the members of a struct, the lookup of their
// names, the comparison with NVIDIA's headers (abi_test.cpp), and the declarations of the fake libraries of the tests.
//
// The declarations are our own, of the public C interfaces: no NVIDIA header is needed to build. Enumerations are int,
// as the x86-64 and AArch64 C interfaces pass them, with constants for the values that the probe uses; handles are
// pointers to structs that nobody defines. Names and versions of functions (_v2) are those that the libraries export,
// not those that headers map them from.

namespace varve::gpu::api {

template <typename Signature>
struct Function;

// A function of a library with its name, for messages. Null until bound, and afterwards if it was optional and is
// missing.
template <typename Result, typename... Parameters>
struct Function<Result(Parameters...)> {
  const char* name;
  Result (*address)(Parameters...) = nullptr;

  Result operator()(Parameters... parameters) const { return address(parameters...); }
  explicit operator bool() const { return address != nullptr; }
  void bind(void* found) { address = reinterpret_cast<Result (*)(Parameters...)>(found); }
};

}  // namespace varve::gpu::api

#define VARVE_API_MEMBER(function, result, ...) Function<result(__VA_ARGS__)> function{#function};
#define VARVE_API_BIND(function, result, ...) this->function.bind(find(this->function.name));

// A struct with one member for each function. bind_required() and bind_optional() ask `find` for the address behind
// each name; what find does about a name that is missing decides.
#define VARVE_API_STRUCT(Type, REQUIRED, OPTIONAL)     \
  struct Type {                                        \
    REQUIRED(VARVE_API_MEMBER)                         \
    OPTIONAL(VARVE_API_MEMBER)                         \
    template <typename Find>                           \
    void bind_required(Find&& find) {                  \
      REQUIRED(VARVE_API_BIND)                         \
    }                                                  \
    template <typename Find>                           \
    void bind_optional([[maybe_unused]] Find&& find) { \
      OPTIONAL(VARVE_API_BIND)                         \
    }                                                  \
  };

#define VARVE_API_NONE(F)
