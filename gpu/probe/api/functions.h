#pragma once
// How the lists of C functions beside this file are used. A list is a macro that calls F(name, result, parameters...)
// once for each function that the probe calls; from the one list come the members of a struct of pointers, the lookup
// of their names, the comparison with NVIDIA's headers (abi_test.cpp), and the declarations of the fake libraries of
// the tests.
//
// The declarations are our own, of the public C interfaces: no NVIDIA header is needed to build. Enumerations are int,
// as the x86-64 and AArch64 C interfaces pass them, with constants for the values that the probe uses; handles are
// pointers to structs that nobody defines. Names and versions of functions (_v2) are those that the libraries export,
// not those that headers map them from.

#define VARVE_API_MEMBER(name, result, ...) result (*name)(__VA_ARGS__) = nullptr;
#define VARVE_API_BIND(name, result, ...) this->name = reinterpret_cast<result (*)(__VA_ARGS__)>(find(#name));

// A struct with one pointer for each function. bind_required() and bind_optional() ask `find` for the address behind
// each name; what find returns for a name that is missing decides.
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
