#include <algorithm>

#include "analyzer/notebooks/internal/gpu_rules.h"
#include "analyzer/notebooks/internal/source_chars.h"
#include "core/base/text/strings.h"

namespace varve::notebooks {
namespace {

// Everything that may put a model or its data on a device without a word of it in the notebook.
bool placed_by_others(const HintedCode& code) {
  return code.has_any({"Accelerator",
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

bool is_quiet_class(const HintedCode& code, std::string_view name) {
  for (int i = 0; i < code.size(); ++i) {
    if (code[i].word() != "class" || code[i].tokens.size() < 2 || code[i].tokens[1] != name) continue;
    for (int k = i; k < code.block_end(i); ++k) {
      if (code[k].has("device") || code[k].has("cuda") || code[k].has("to")) return false;
    }
    return true;
  }
  return false;
}

// The only statement `model = Class(…)`, for a class defined in the notebook that says nothing of devices; else -1.
int made_here(const HintedCode& code, std::string_view model) {
  int made = -1;
  for (int i = 0; i < code.size(); ++i) {
    const auto& tokens = code[i].tokens;
    if (tokens.size() < 4 || tokens[0] != model || tokens[1] != "=") continue;
    if (made >= 0 || tokens[3] != "(" || code.function_of(i) >= 0 || !is_quiet_class(code, tokens[2])) return -1;
    made = i;
  }
  return made;
}

// Whether anything in the notebook may move the model: it is moved, or handed to a function that may.
bool mentions_device(const HintedCode& code, std::string_view model) {
  for (const auto& statement : code.all()) {
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

// A class of the notebook's own is made, trained on batches that are moved, and is never moved itself.
void check_models(const HintedCode& code, Hints& hints) {
  for (const auto model : code.optimized()) {
    const int made = made_here(code, model);
    if (made < 0 || mentions_device(code, model)) continue;
    for (int i = made + 1; i < code.size(); ++i) {
      const int loop = code.loop_of(i);
      if (loop < 0 || !calls(code[i], model)) continue;
      if (!code.block_has(loop, {".", "to", "("}) && !code.block_has(loop, {".", "cuda", "("})) continue;
      hints.add(made, "model-not-moved",
                quoted(model) + " is never moved to the device, and the batches it is called with are");
      break;
    }
  }
}

bool mentions_gpu(const HintedCode& code) {
  return std::any_of(code.all().begin(), code.all().end(), [](const Statement& statement) {
    return std::any_of(statement.tokens.begin(), statement.tokens.end(), [](std::string_view token) {
      const auto lower = to_lower(token.substr(0, 64));
      return lower == "to" || lower.find("cuda") != std::string::npos || lower.find("device") != std::string::npos ||
             lower.find("gpu") != std::string::npos;
    });
  });
}

// A whole training loop, and no word in the notebook that could put it on a GPU.
void check_training_on_cpu(const HintedCode& code, Hints& hints) {
  if (code.optimized().empty() || mentions_gpu(code)) return;
  for (int i = 0; i < code.size(); ++i) {
    const int loop = code.loop_of(i);
    if (loop < 0 || code[i].find({".", "backward", "("}) < 0 || !code.block_has(loop, {".", "step", "("})) continue;
    const bool called = std::any_of(code.optimized().begin(), code.optimized().end(), [&](auto model) {
      for (int k = loop + 1; k < code.block_end(loop); ++k) {
        if (calls(code[k], model)) return true;
      }
      return false;
    });
    if (!called) continue;
    hints.add(i, "training-on-cpu", "this loop trains, and nothing in the notebook moves a model or a tensor to a GPU");
    return;
  }
}

bool compares_count(const Statement& statement) {
  const int at = statement.find({"device_count", "(", ")"});
  if (at < 0 || static_cast<std::size_t>(at) + 4 >= statement.tokens.size()) return false;
  const auto sign = statement.tokens[static_cast<std::size_t>(at) + 3];
  const auto number = statement.tokens[static_cast<std::size_t>(at) + 4];
  return (sign == ">" && number == "1") || (sign == ">=" && number == "2");
}

// The number of GPUs is compared with one, and nothing could use the others.
void check_several_gpus(const HintedCode& code, Hints& hints) {
  if (code.has_any({"device_ids", "init_process_group", "DDP", "FSDP", "accelerate", "Strategy", "MirroredStrategy",
                    "data_parallel"}))
    return;
  if (!code.has_sequence({".", "backward", "("})) return;
  int counted = -1;
  for (int i = 0; i < code.size(); ++i) {
    for (const auto token : code[i].tokens) {
      if (token.size() > 6 && token.find("cuda:") != std::string_view::npos &&
          token.find("cuda:0") == std::string_view::npos)
        return;
    }
    if (counted < 0 && compares_count(code[i])) counted = i;
  }
  if (counted >= 0)
    hints.add(counted, "one-gpu-of-several",
              "several GPUs are asked for here, and nothing in the notebook uses more than one");
}

}  // namespace

void check_placement(const HintedCode& code, Hints& hints) {
  if (placed_by_others(code)) return;
  check_models(code, hints);
  check_training_on_cpu(code, hints);
  check_several_gpus(code, hints);
}

}  // namespace varve::notebooks
