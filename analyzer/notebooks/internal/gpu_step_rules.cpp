#include <algorithm>
#include <cstdlib>

#include "analyzer/notebooks/internal/gpu_rules.h"
#include "analyzer/notebooks/internal/source_chars.h"

namespace varve::notebooks {
namespace {

// What takes a number, or a copy without graph, out of a tensor.
bool frees_tensor(std::string_view method) {
  return is_one_of(method, {"item", "detach", "detach_", "cpu", "numpy", "tolist", "data", "float", "shape", "size",
                            "argmax", "backward"});
}

// A place in `tokens` from `from` on where `name` stands with its graph; -1 if there is none.
int find_with_graph(const std::vector<std::string_view>& tokens, std::string_view name, std::size_t from) {
  for (auto i = from; i < tokens.size(); ++i) {
    if (tokens[i] != name || tokens[i - 1] == ".") continue;
    if (i + 2 < tokens.size() && tokens[i + 1] == "." && frees_tensor(tokens[i + 2])) continue;
    if (i + 1 < tokens.size() && (tokens[i + 1] == "(" || tokens[i + 1] == "=" || tokens[i + 1] == "[")) continue;
    return static_cast<int>(i);
  }
  return -1;
}

// `total += loss` in a loop in which loss.backward() is called.
void check_summed_loss(const HintedCode& code, int index, Hints& hints) {
  const auto& statement = code[index];
  const auto& tokens = statement.tokens;
  const int loop = code.loop_of(index);
  if (loop < 0 || tokens.size() < 3 || tokens.size() > 60 || !is_name(tokens[0])) return;
  std::size_t value = 0;
  if (tokens[1] == "+=") value = 2;
  if (tokens[1] == "=" && tokens[2] == tokens[0] && tokens.size() > 4 && tokens[3] == "+") value = 4;
  const bool appends = tokens.size() == 6 && tokens[1] == "." && tokens[2] == "append" && tokens[3] == "(";
  if (appends) value = 4;
  if (value == 0 || code.without_graph(index)) return;
  for (auto i = value; i < tokens.size(); ++i) {
    if (is_one_of(tokens[i], {"float", "int", "item", "detach", "cpu", "numpy", "no_grad", "reduce_mean"})) return;
  }
  for (auto i = value; i < tokens.size(); ++i) {
    const auto name = tokens[i];
    if (!is_name(name) || name == tokens[0] || find_with_graph(tokens, name, i) != static_cast<int>(i)) continue;
    if (!code.block_has(loop, {name, ".", "backward", "("}) || code.has_sequence({tokens[0], ".", "backward"}))
      continue;
    if (code.made_plain(loop, name) || code.made_plain(-1, tokens[0])) continue;
    hints.add(index, "loss-kept-with-graph",
              quoted(tokens[0]) + (appends ? " keeps " : " sums ") + quoted(name) + " with its graph, step by step; " +
                  quoted(std::string(name) + ".item()") + " is the number alone");
    return;
  }
}

// model.eval(), and then a loop that calls model(…) and no word of no_grad in the cell.
void check_evaluation(const HintedCode& code, int index, Hints& hints) {
  const auto& statement = code[index];
  const auto& tokens = statement.tokens;
  if (tokens.size() < 5 || tokens[1] != "." || tokens[2] != "eval" || tokens[3] != "(" || tokens[4] != ")" ||
      !is_name(tokens[0]))
    return;
  const auto name = tokens[0];
  const int scope = code.function_of(index);
  for (int i = index + 1; i < code.size() && code[i].cell == statement.cell; ++i) {
    if (code.function_of(i) != scope) continue;
    if (code[i].find({name, ".", "train", "("}) >= 0) return;
    const int loop = code.loop_of(i);
    if (loop < index || !calls(code[i], name)) continue;
    if (code.without_graph(i) || code.cell_has_no_grad(statement.cell) || code.block_has(loop, {".", "backward", "("}))
      return;
    if (code.has("set_grad_enabled") || code.has("requires_grad_") || code.has("requires_grad") || code.has("set_grad"))
      return;
    hints.add(i, "evaluation-without-no-grad",
              quoted(std::string(name) + "(…)") + " in a loop after " + quoted(std::string(name) + ".eval()") +
                  " keeps what gradients would need; `with torch.no_grad():` does not");
    return;
  }
}

// `name = model(…)` in the loop, and nothing in it that makes a plain copy of it.
bool comes_from_model(const HintedCode& code, int loop, std::string_view name, std::string_view model) {
  bool comes = false;
  for (int i = loop + 1; i < code.block_end(loop); ++i) {
    const auto& tokens = code[i].tokens;
    if (tokens.size() < 4 || tokens[0] != name || tokens[1] != "=") continue;
    const bool here = tokens[2] == model && tokens[3] == "(";
    if (std::any_of(tokens.begin() + 2, tokens.end(), [](auto t) { return frees_tensor(t) && t != "size"; }))
      return false;
    comes |= here;
  }
  return comes;
}

// The list is emptied again and again, or what is in it becomes a loss.
bool leaves_list(const HintedCode& code, std::string_view list) {
  return code.has_sequence({list, ".", "clear", "("}) || code.has_sequence({list, ".", "pop", "("}) ||
         code.has_sequence({list, ".", "popleft", "("});
}

// outputs.append(model(x)), or of a name that is model(x), for a model that was moved to the device.
void check_kept_output(const HintedCode& code, int index, Hints& hints) {
  const auto& tokens = code[index].tokens;
  const int loop = code.loop_of(index);
  if (loop < 0 || tokens.size() < 6 || tokens.size() > 40 || tokens[1] != "." || tokens[2] != "append" ||
      tokens[3] != "(")
    return;
  for (const auto token : tokens) {
    if (frees_tensor(token) || is_one_of(token, {"len", "int", "decode", "batch_decode", "str"})) return;
  }
  const auto kept = tokens[4];
  for (const auto model : code.models()) {
    if (!code.moved().contains(model)) continue;
    const bool direct = kept == model && tokens[5] == "(";
    if (!direct && !(tokens[5] == ")" || (tokens[5] == "." && tokens.size() == 8 &&
                                          is_one_of(tokens[6], {"logits", "last_hidden_state", "pooler_output"}))))
      continue;
    if (!direct && !comes_from_model(code, loop, kept, model)) continue;
    if (leaves_list(code, tokens[0])) return;
    hints.add(index, "outputs-kept-on-gpu",
              quoted(tokens[0]) + " grows with outputs of " + quoted(model) + " that stay in GPU memory; " +
                  quoted(".detach().cpu()") + " moves them out");
    return;
  }
}

void check_empty_cache(const HintedCode& code, int index, Hints& hints) {
  const int at = code[index].find({"empty_cache", "(", ")"});
  const int loop = code.loop_of(index);
  if (at < 0 || loop < 0 || code[index].word() == "def") return;
  // Once for each epoch does little harm: the loop must be the one that steps.
  for (int i = loop + 1; i < code.block_end(loop); ++i) {
    if (code.loop_of(i) == loop && code[i].find({".", "backward", "("}) >= 0) {
      hints.add(
          index, "empty-cache-in-loop",
          "`torch.cuda.empty_cache()` at each step makes CUDA allocate the same memory again; PyTorch reuses it by "
          "itself");
      return;
    }
  }
}

void check_retained_graph(const HintedCode& code, int index, Hints& hints) {
  const int loop = code.loop_of(index);
  if (loop < 0 || code[index].find({"retain_graph", "=", "True"}) < 0 || code[index].find({".", "backward", "("}) < 0)
    return;
  int passes = 0;
  for (int i = loop + 1; i < code.block_end(loop); ++i) {
    if (code[i].find({".", "backward", "("}) >= 0 || code[i].find({"grad", "("}) >= 0) ++passes;
  }
  if (passes != 1) return;
  hints.add(index, "retain-graph-in-loop",
            "`retain_graph=True` keeps the graph, though no second `backward()` in this loop needs it");
}

}  // namespace

void check_torch_statement(const HintedCode& code, int index, Hints& hints) {
  check_summed_loss(code, index, hints);
  check_evaluation(code, index, hints);
  check_kept_output(code, index, hints);
  check_empty_cache(code, index, hints);
  check_retained_graph(code, index, hints);
}

}  // namespace varve::notebooks
