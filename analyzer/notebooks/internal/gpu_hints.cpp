#include "analyzer/notebooks/internal/gpu_hints.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>

#include "analyzer/notebooks/internal/collector.h"
#include "analyzer/notebooks/internal/source_chars.h"
#include "analyzer/notebooks/internal/statements.h"
#include "core/base/safe_text.h"

namespace varve::notebooks {

namespace {

constexpr std::size_t kMaxHintedBytes = 4u << 20;  // of code: rules look at pairs of lines
constexpr std::size_t kMaxHints = 1000;
constexpr int kMaxModels = 16;
constexpr int kMaxStatementsOfHints = 5000;

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}
bool is_name(std::string_view token) { return !token.empty() && is_word(token.front()) && !is_digit(token.front()); }
std::string quoted(std::string_view name) { return "`" + std::string(name) + "`"; }

// What takes a number, or a copy without graph, out of a tensor.
bool frees_tensor(std::string_view method) {
  return is_one_of(method, {"item", "detach", "detach_", "cpu", "numpy", "tolist", "data", "float", "shape", "size",
                            "argmax", "backward"});
}

class GpuHints {
 public:
  GpuHints(const StatementList& code, Findings& findings) : code_(code), findings_(findings) {
    for (int i = 0; i < code_.size(); ++i) find_models(i);
  }

  void find_torch_hints() {
    for (int i = 0; i < code_.size() && findings_.hints.size() < kMaxHints; ++i) {
      check_summed_loss(i);
      check_evaluation(i);
      check_kept_output(i);
      check_empty_cache(i);
      check_retained_graph(i);
    }
    check_models();
    check_training_on_cpu();
    check_several_gpus();
  }

  void find_transformers_hints() {
    for (int i = 0; i < code_.size() && findings_.hints.size() < kMaxHints; ++i) check_full_precision(i);
  }

 private:
  void add(int statement, std::string kind, std::string_view text) {
    const auto& at = code_[statement];
    findings_.hints.push_back({.kind = std::move(kind), .text = single_line(text), .cell = at.cell, .line = at.line});
  }

  // Names that are asked for .parameters(), or switched by .train() and .eval().
  void find_models(int index) {
    const auto& tokens = code_[index].tokens;
    for (std::size_t i = 0; i + 3 < tokens.size(); ++i) {
      if (tokens[i + 1] != "." || tokens[i + 3] != "(" || !is_name(tokens[i])) continue;
      if (i > 0 && tokens[i - 1] == ".") continue;
      if (is_one_of(tokens[i + 2], {"parameters", "eval", "train"}) && models_.size() < kMaxModels)
        models_.insert(tokens[i]);
      if (tokens[i + 2] == "parameters") optimized_.insert(tokens[i]);
      if (is_one_of(tokens[i + 2], {"to", "cuda"})) moved_.insert(tokens[i]);
    }
  }

  bool calls(const Statement& statement, std::string_view name) const {
    for (int at = statement.find({name, "("}); at >= 0; at = statement.find({name, "("}, at + 1)) {
      if (at == 0 || (statement.tokens[static_cast<std::size_t>(at) - 1] != "." &&
                      statement.tokens[static_cast<std::size_t>(at) - 1] != "def"))
        return true;
    }
    return false;
  }

  bool block_has(int block, std::initializer_list<std::string_view> sequence) const {
    for (int i = block; i < code_.block_end(block); ++i) {
      if (code_[i].find(sequence) >= 0) return true;
    }
    return false;
  }

  bool without_graph(int index) const {
    for (int at = code_[index].parent; at >= 0; at = code_[at].parent) {
      const auto& header = code_[at];
      if (header.word() == "with" &&
          (header.has("no_grad") || header.has("inference_mode") || header.has("set_grad_enabled")))
        return true;
      if (header.word() == "def" && at > 0 && code_[at - 1].word() == "@" &&
          (code_[at - 1].has("no_grad") || code_[at - 1].has("inference_mode"))) {
        return true;
      }
    }
    return false;
  }

  // A place in `tokens` from `from` on where `name` stands with its graph; -1 if there is none.
  static int find_with_graph(const std::vector<std::string_view>& tokens, std::string_view name, std::size_t from) {
    for (auto i = from; i < tokens.size(); ++i) {
      if (tokens[i] != name || tokens[i - 1] == ".") continue;
      if (i + 2 < tokens.size() && tokens[i + 1] == "." && frees_tensor(tokens[i + 2])) continue;
      if (i + 1 < tokens.size() && (tokens[i + 1] == "(" || tokens[i + 1] == "=" || tokens[i + 1] == "[")) continue;
      return static_cast<int>(i);
    }
    return -1;
  }

  // `total += loss` in a loop in which loss.backward() is called.
  void check_summed_loss(int index) {
    const auto& statement = code_[index];
    const auto& tokens = statement.tokens;
    const int loop = code_.loop_of(index);
    if (loop < 0 || tokens.size() < 3 || tokens.size() > 60 || !is_name(tokens[0])) return;
    std::size_t value = 0;
    if (tokens[1] == "+=") value = 2;
    if (tokens[1] == "=" && tokens[2] == tokens[0] && tokens.size() > 4 && tokens[3] == "+") value = 4;
    const bool appends = tokens.size() == 6 && tokens[1] == "." && tokens[2] == "append" && tokens[3] == "(";
    if (appends) value = 4;
    if (value == 0 || without_graph(index)) return;
    for (auto i = value; i < tokens.size(); ++i) {
      if (is_one_of(tokens[i], {"float", "int", "item", "detach", "cpu", "numpy", "no_grad", "reduce_mean"})) return;
    }
    for (auto i = value; i < tokens.size(); ++i) {
      const auto name = tokens[i];
      if (!is_name(name) || name == tokens[0] || find_with_graph(tokens, name, i) != static_cast<int>(i)) continue;
      if (!block_has(loop, {name, ".", "backward", "("}) || code_has({tokens[0], ".", "backward"})) continue;
      if (made_plain(loop, name) || made_plain(-1, tokens[0])) continue;
      add(index, "loss-kept-with-graph",
          quoted(tokens[0]) + (appends ? " keeps " : " sums ") + quoted(name) + " with its graph, step by step; " +
              quoted(std::string(name) + ".item()") + " is the number alone");
      return;
    }
  }

  bool code_has(std::initializer_list<std::string_view> sequence) const {
    return std::any_of(code_.all().begin(), code_.all().end(),
                       [&](const Statement& s) { return s.find(sequence) >= 0; });
  }

  // `loss = loss.item()`, `loss = float(loss)`, in the block or (-1) anywhere.
  bool made_plain(int block, std::string_view name) const {
    const int end = block < 0 ? code_.size() : code_.block_end(block);
    for (int i = std::max(block, 0); i < end; ++i) {
      const auto& tokens = code_[i].tokens;
      if (tokens.size() < 3 || tokens[0] != name || tokens[1] != "=") continue;
      if (std::any_of(tokens.begin() + 2, tokens.end(), [](auto t) {
            return is_one_of(t, {"item", "detach", "float", "numpy", "cpu"});
          }))
        return true;
    }
    return false;
  }

  // model.eval(), and then a loop that calls model(…) and no word of no_grad in the cell.
  void check_evaluation(int index) {
    const auto& statement = code_[index];
    const auto& tokens = statement.tokens;
    if (tokens.size() < 5 || tokens[1] != "." || tokens[2] != "eval" || tokens[3] != "(" || tokens[4] != ")" ||
        !is_name(tokens[0]))
      return;
    const auto name = tokens[0];
    const int scope = code_.function_of(index);
    for (int i = index + 1; i < code_.size() && code_[i].cell == statement.cell; ++i) {
      if (code_.function_of(i) != scope) continue;
      if (code_[i].find({name, ".", "train", "("}) >= 0) return;
      const int loop = code_.loop_of(i);
      if (loop < index || !calls(code_[i], name)) continue;
      if (without_graph(i) || cell_has_no_grad(statement.cell) || block_has(loop, {".", "backward", "("})) return;
      if (code_.has("set_grad_enabled") || code_.has("requires_grad_") || code_.has("requires_grad") ||
          code_.has("set_grad"))
        return;
      add(i, "evaluation-without-no-grad",
          quoted(std::string(name) + "(…)") + " in a loop after " + quoted(std::string(name) + ".eval()") +
              " keeps what gradients would need; `with torch.no_grad():` does not");
      return;
    }
  }

  bool cell_has_no_grad(std::uint32_t cell) const {
    return std::any_of(code_.all().begin(), code_.all().end(), [&](const Statement& s) {
      return s.cell == cell && (s.has("no_grad") || s.has("inference_mode") || s.has("grad"));
    });
  }

  // outputs.append(model(x)), or of a name that is model(x), for a model that was moved to the device.
  void check_kept_output(int index) {
    const auto& tokens = code_[index].tokens;
    const int loop = code_.loop_of(index);
    if (loop < 0 || tokens.size() < 6 || tokens.size() > 40 || tokens[1] != "." || tokens[2] != "append" ||
        tokens[3] != "(")
      return;
    for (const auto token : tokens) {
      if (frees_tensor(token) || is_one_of(token, {"len", "int", "decode", "batch_decode", "str"})) return;
    }
    const auto kept = tokens[4];
    for (const auto model : models_) {
      if (!moved_.contains(model)) continue;
      const bool direct = kept == model && tokens[5] == "(";
      if (!direct && !(tokens[5] == ")" || (tokens[5] == "." && tokens.size() == 8 &&
                                            is_one_of(tokens[6], {"logits", "last_hidden_state", "pooler_output"}))))
        continue;
      if (!direct && !comes_from_model(loop, kept, model)) continue;
      if (leaves_list(tokens[0])) return;
      add(index, "outputs-kept-on-gpu",
          quoted(tokens[0]) + " grows with outputs of " + quoted(model) + " that stay in GPU memory; " +
              quoted(".detach().cpu()") + " moves them out");
      return;
    }
  }

  // `name = model(…)` in the loop, and nothing in it that makes a plain copy of it.
  bool comes_from_model(int loop, std::string_view name, std::string_view model) const {
    bool comes = false;
    for (int i = loop + 1; i < code_.block_end(loop); ++i) {
      const auto& tokens = code_[i].tokens;
      if (tokens.size() < 4 || tokens[0] != name || tokens[1] != "=") continue;
      const bool here = tokens[2] == model && tokens[3] == "(";
      if (std::any_of(tokens.begin() + 2, tokens.end(), [](auto t) { return frees_tensor(t) && t != "size"; }))
        return false;
      comes |= here;
    }
    return comes;
  }

  // The list is emptied again and again, or what is in it becomes a loss.
  bool leaves_list(std::string_view list) const {
    return code_has({list, ".", "clear", "("}) || code_has({list, ".", "pop", "("}) ||
           code_has({list, ".", "popleft", "("});
  }

  void check_empty_cache(int index) {
    const int at = code_[index].find({"empty_cache", "(", ")"});
    const int loop = code_.loop_of(index);
    if (at < 0 || loop < 0 || code_[index].word() == "def") return;
    // Once for each epoch does little harm: the loop must be the one that steps.
    for (int i = loop + 1; i < code_.block_end(loop); ++i) {
      if (code_.loop_of(i) == loop && code_[i].find({".", "backward", "("}) >= 0) {
        add(index, "empty-cache-in-loop",
            "`torch.cuda.empty_cache()` at each step makes CUDA allocate the same memory again; PyTorch reuses it by "
            "itself");
        return;
      }
    }
  }

  void check_retained_graph(int index) {
    const int loop = code_.loop_of(index);
    if (loop < 0 || code_[index].find({"retain_graph", "=", "True"}) < 0 ||
        code_[index].find({".", "backward", "("}) < 0)
      return;
    int passes = 0;
    for (int i = loop + 1; i < code_.block_end(loop); ++i) {
      if (code_[i].find({".", "backward", "("}) >= 0 || code_[i].find({"grad", "("}) >= 0) ++passes;
    }
    if (passes != 1) return;
    add(index, "retain-graph-in-loop",
        "`retain_graph=True` keeps the graph, though no second `backward()` in this loop needs it");
  }

  // Everything that may put a model or its data on a device without a word of it in the notebook.
  bool placed_by_others() const {
    return code_.has_any({"Accelerator",
                          "accelerator",
                          "Trainer",
                          "trainer",
                          "Seq2SeqTrainer",
                          "SFTTrainer",
                          "LightningModule",
                          "lightning",
                          "pl",
                          "Learner",
                          "Fabric",
                          "fabric",
                          "deepspeed",
                          "ignite",
                          "set_default_device",
                          "set_default_tensor_type",
                          "device_map",
                          "xm",
                          "DataParallel",
                          "DistributedDataParallel",
                          "FSDP",
                          "FullyShardedDataParallel",
                          "prepare",
                          "notebook_launcher",
                          "spawn",
                          "torch_xla",
                          "poutyne",
                          "skorch",
                          "cnn_learner",
                          "Estimator",
                          "PyTorch",
                          "HuggingFace",
                          "ray",
                          "YOLO"});
  }

  // A class of the notebook's own is made, trained on batches that are moved, and is never moved itself.
  void check_models() {
    if (placed_by_others()) return;
    for (const auto model : optimized_) {
      const int made = made_here(model);
      if (made < 0 || mentions_device(model)) continue;
      for (int i = made + 1; i < code_.size(); ++i) {
        const int loop = code_.loop_of(i);
        if (loop < 0 || !calls(code_[i], model)) continue;
        if (!block_has(loop, {".", "to", "("}) && !block_has(loop, {".", "cuda", "("})) continue;
        add(made, "model-not-moved",
            quoted(model) + " is never moved to the device, and the batches it is called with are");
        break;
      }
    }
  }

  // The only statement `model = Class(…)`, for a class defined in the notebook that says nothing of devices; else -1.
  int made_here(std::string_view model) const {
    int made = -1;
    for (int i = 0; i < code_.size(); ++i) {
      const auto& tokens = code_[i].tokens;
      if (tokens.size() < 4 || tokens[0] != model || tokens[1] != "=") continue;
      if (made >= 0 || tokens[3] != "(" || code_.function_of(i) >= 0 || !is_quiet_class(tokens[2])) return -1;
      made = i;
    }
    return made;
  }

  bool is_quiet_class(std::string_view name) const {
    for (int i = 0; i < code_.size(); ++i) {
      if (code_[i].word() != "class" || code_[i].tokens.size() < 2 || code_[i].tokens[1] != name) continue;
      for (int k = i; k < code_.block_end(i); ++k) {
        if (code_[k].has("device") || code_[k].has("cuda") || code_[k].has("to")) return false;
      }
      return true;
    }
    return false;
  }

  // Whether anything in the notebook may move the model: it is moved, or handed to a function that may.
  bool mentions_device(std::string_view model) const {
    for (const auto& statement : code_.all()) {
      const auto& tokens = statement.tokens;
      if (!statement.has(model)) continue;
      if (statement.find({model, ".", "to"}) >= 0 || statement.find({model, ".", "cuda"}) >= 0) return true;
      for (std::size_t i = 1; i + 1 < tokens.size(); ++i) {
        if (tokens[i] != model) continue;
        const bool handed =
            is_one_of(tokens[i - 1], {"(", ",", "=", "[", "in"}) && is_one_of(tokens[i + 1], {",", ")", "]", ":"});
        if (handed && !is_one_of(tokens[0], {"print", "summary", "display"})) return true;
      }
    }
    return false;
  }

  // A whole training loop, and no word in the notebook that could put it on a GPU.
  void check_training_on_cpu() {
    if (placed_by_others() || optimized_.empty() || mentions_gpu()) return;
    for (int i = 0; i < code_.size(); ++i) {
      const int loop = code_.loop_of(i);
      if (loop < 0 || code_[i].find({".", "backward", "("}) < 0 || !block_has(loop, {".", "step", "("})) continue;
      const bool called = std::any_of(optimized_.begin(), optimized_.end(), [&](auto model) {
        for (int k = loop + 1; k < code_.block_end(loop); ++k) {
          if (calls(code_[k], model)) return true;
        }
        return false;
      });
      if (!called) continue;
      add(i, "training-on-cpu", "this loop trains, and nothing in the notebook moves a model or a tensor to a GPU");
      return;
    }
  }

  bool mentions_gpu() const {
    return std::any_of(code_.all().begin(), code_.all().end(), [](const Statement& statement) {
      return std::any_of(statement.tokens.begin(), statement.tokens.end(), [](std::string_view token) {
        const auto lower = to_lower(token.substr(0, 64));
        return lower == "to" || lower.find("cuda") != std::string::npos || lower.find("device") != std::string::npos ||
               lower.find("gpu") != std::string::npos;
      });
    });
  }

  // The number of GPUs is compared with one, and nothing could use the others.
  void check_several_gpus() {
    if (placed_by_others() || code_.has_any({"device_ids", "init_process_group", "DDP", "FSDP", "accelerate",
                                             "Strategy", "MirroredStrategy", "data_parallel"}))
      return;
    if (!code_has({".", "backward", "("})) return;
    int counted = -1;
    for (int i = 0; i < code_.size(); ++i) {
      for (const auto token : code_[i].tokens) {
        if (token.size() > 6 && token.find("cuda:") != std::string_view::npos &&
            token.find("cuda:0") == std::string_view::npos)
          return;
      }
      if (counted < 0 && compares_count(code_[i])) counted = i;
    }
    if (counted >= 0)
      add(counted, "one-gpu-of-several",
          "several GPUs are asked for here, and nothing in the notebook uses more than one");
  }

  static bool compares_count(const Statement& statement) {
    const int at = statement.find({"device_count", "(", ")"});
    if (at < 0 || static_cast<std::size_t>(at) + 4 >= statement.tokens.size()) return false;
    const auto sign = statement.tokens[static_cast<std::size_t>(at) + 3];
    const auto number = statement.tokens[static_cast<std::size_t>(at) + 4];
    return (sign == ">" && number == "1") || (sign == ">=" && number == "2");
  }

  // AutoModelForCausalLM.from_pretrained("…-7b") with nothing said of its precision.
  void check_full_precision(int index) {
    const auto& statement = code_[index];
    const int at = statement.find({"AutoModelForCausalLM", ".", "from_pretrained", "("});
    if (at < 0 || static_cast<std::size_t>(at) + 4 >= statement.tokens.size()) return;
    for (const auto token : statement.tokens) {
      if (is_one_of(token, {"torch_dtype", "dtype", "load_in_8bit", "load_in_4bit", "quantization_config", "half",
                            "bfloat16", "float16", "*", "**", "gguf_file", "config"})) {
        return;
      }
    }
    const auto name = statement.tokens[static_cast<std::size_t>(at) + 4];
    const double billions = billions_in(name);
    if (billions < 1 || code_.has("set_default_dtype")) return;
    add(index, "large-model-in-float32",
        "a model of about " + std::string(name.substr(1, name.size() - 2)) +
            "'s size is loaded as float32 by Transformers before version 5; `torch_dtype=\"auto\"` halves its memory");
  }

  // 7 of "meta-llama/Llama-2-7b-hf"; 0 if the name tells no size, or that it is quantised.
  static double billions_in(std::string_view literal) {
    if (literal.size() < 3 || literal.size() > 200 || (literal.front() != '"' && literal.front() != '\'')) return 0;
    const auto name = to_lower(literal);
    for (const std::string_view quantised :
         {"gptq", "awq", "4bit", "8bit", "int4", "int8", "fp8", "gguf", "bnb", "nf4", "fp4", "bf16", "fp16"}) {
      if (name.find(quantised) != std::string::npos) return 0;
    }
    for (std::size_t i = 1; i + 1 < name.size(); ++i) {
      if (name[i] != 'b' || !is_digit(name[i - 1]) || is_word(name[i + 1])) continue;
      auto start = i;
      while (start > 0 && (is_digit(name[start - 1]) || name[start - 1] == '.')) --start;
      if (start > 0 && is_word(name[start - 1])) continue;
      return std::strtod(name.c_str() + start, nullptr);
    }
    return 0;
  }

  const StatementList& code_;
  Findings& findings_;
  std::set<std::string_view> models_;
  std::set<std::string_view> optimized_;  // models whose parameters an optimizer was given
  std::set<std::string_view> moved_;      // names with .to(…) or .cuda()
};

bool imports_any(const Findings& findings, std::initializer_list<std::string_view> modules) {
  return std::any_of(findings.imports.begin(), findings.imports.end(), [&](const Import& found) {
    if (found.written_file || found.local) return false;
    return is_one_of(std::string_view(found.name).substr(0, found.name.find('.')), modules);
  });
}

}  // namespace

void add_gpu_hints(const std::vector<Cell>& cells, Findings& findings) {
  const bool torch = imports_any(findings, {"torch"});
  const bool transformers = imports_any(findings, {"transformers"});
  if (!torch && !transformers) return;
  std::size_t bytes = 0;
  for (const auto& cell : cells) bytes += cell.text.size();
  if (bytes > kMaxHintedBytes) return;
  const StatementList code(cells);
  if (code.size() > kMaxStatementsOfHints) return;
  GpuHints hints(code, findings);
  if (torch) hints.find_torch_hints();
  if (transformers) hints.find_transformers_hints();
  std::stable_sort(findings.hints.begin(), findings.hints.end(),
                   [](const Hint& a, const Hint& b) { return a.cell != b.cell ? a.cell < b.cell : a.line < b.line; });
}

}  // namespace varve::notebooks
