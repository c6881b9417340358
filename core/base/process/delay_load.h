#pragma once
// Shared libraries that are loaded by the first call of one of their functions. libcurl, libssl, libpq, libarchive,
// libmicrohttpd and libsystemd bring 38 libraries along: half of the time that the program takes to start, more than
// that on a machine that has just been booted, while most commands need none of them. libcrypto and libsqlite3 have the
// most symbols to look up.
//
// The caller sees nothing of it: for each function there is a stand-in of the same name (cmake/delay-load), which finds
// the function and jumps there, from the second time on at once. A process that runs for days takes the library that is
// installed when it first needs it.
namespace varve {

// As the assembly has it.
struct DelayedFunction {
  const char* name;
  void* entry;  // where its stand-in jumps to
};

}  // namespace varve

// For the stand-ins, safe from any thread. Throws Error, through the stand-in to its caller, where the library is not
// installed; and where the root of this process is no longer that of its start, as the library of that name would be
// somebody else's.
extern "C" void* varve_find_delayed(const char* soname, varve::DelayedFunction& function);
