#pragma once
// Which language a notebook, a cell or a file is written in, as far as it says so.
#include <string>
#include <string_view>

namespace varve::notebooks {

// "Python 3", "pyspark", "IPython" -> "python"; "R", "ir" -> "r"; "Julia" -> "julia"; others in lower case; "" stays.
std::string language_of_name(std::string_view name);

// What the name of a kernel says: "python3", "conda_pytorch_p310", "pysparkkernel", "ir", "julia-1.9", "xcpp17",
// "conda-env-stats-r".
// "" = a name that says nothing, such as that of somebody's environment.
std::string language_of_kernel(std::string_view name);

// The three places where a notebook may tell its language, strongest first. "" = not told.
std::string language_of_notebook(std::string_view kernel_language, std::string_view language_name,
                                 std::string_view kernel_name);

// What the text itself looks like, for notebooks that say nothing: "r" or "julia" if its lines can hardly be Python,
// else "python"; "" for text without any code.
std::string language_of_text(std::string_view text);

}  // namespace varve::notebooks
