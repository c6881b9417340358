#pragma once
// What an error says to people.
#include <exception>
#include <string>

namespace varve {

// Its message; that of the standard library's file functions in the form of ours: the path first, then what could not
// be done, and why.
std::string error_text(const std::exception& error);

}  // namespace varve
