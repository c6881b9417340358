// The examples of test_data/gpu_hints.md, and texts that look like them and deserve no hint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <string>

#include "analyzer/notebooks/findings.h"

namespace varve::notebooks {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

std::vector<std::string> kinds(const std::vector<std::string>& cells) {
  std::vector<Cell> read;
  for (const auto& text : cells) read.push_back({.text = text, .number = static_cast<std::uint32_t>(read.size() + 1)});
  std::vector<std::string> found;
  for (const auto& hint : read_python(read).hints) found.push_back(hint.kind);
  return found;
}

struct Examples {
  std::string bad, good;
};

std::map<std::string, Examples> documented_examples() {
  std::map<std::string, Examples> examples;
  std::ifstream page(VARVE_HINTS_PAGE);
  std::string kind;
  std::string* into = nullptr;
  bool in_code = false;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("## ")) kind = line.substr(3);
    if (line == "Bad:") into = &examples[kind].bad;
    if (line == "Good:") into = &examples[kind].good;
    if (line.starts_with("```")) {
      in_code = line == "```python";
    } else if (in_code && into) {
      *into += line + "\n";
    }
  }
  return examples;
}

TEST(GpuHints, AreFoundInTheBadExamplesAndNotInTheGoodOnes) {
  const auto examples = documented_examples();
  ASSERT_THAT(examples, SizeIs(9));
  for (const auto& [kind, example] : examples) {
    EXPECT_THAT(kinds({example.bad}), ElementsAre(kind)) << example.bad;
    EXPECT_THAT(kinds({example.good}), IsEmpty()) << kind << "\n" << example.good;
  }
}

TEST(GpuHints, TellTheCellAndTheLine) {
  const std::string first = "import torch\n";
  const std::string second = "# comment\nfor x in y:\n    loss = f(x)\n    loss.backward()\n    total += loss\n";
  const auto findings = read_python({{.text = first, .number = 3}, {.text = second, .number = 4}});
  ASSERT_THAT(findings.hints, SizeIs(1));
  EXPECT_EQ(findings.hints[0].cell, 4u);
  EXPECT_EQ(findings.hints[0].line, 5u);
  EXPECT_THAT(findings.hints[0].text, testing::HasSubstr("`loss.item()`"));
}

TEST(GpuHints, NeedTorchOrTransformers) {
  const std::string summed = "for x in y:\n    loss = f(x)\n    loss.backward()\n    total += loss\n";
  EXPECT_THAT(kinds({"import mxnet\n" + summed}), IsEmpty());
  EXPECT_THAT(kinds({"import torch\n" + summed}), ElementsAre("loss-kept-with-graph"));
  EXPECT_THAT(kinds({"from torch import nn\n", summed}), ElementsAre("loss-kept-with-graph"));
}

TEST(GpuHints, LetLossesBeSummedThatAreDifferentiatedTogether) {
  EXPECT_THAT(
      kinds({"import torch\nfor x in y:\n    loss = 0\n    for p in x:\n        part = f(p)\n        part.backward\n"
             "        loss += part\n    loss.backward()\n"}),
      IsEmpty());
  EXPECT_THAT(kinds({"import torch\nfor x in y:\n    a = f(x)\n    a.backward()\n    total += a\ntotal.backward()\n"}),
              IsEmpty());
}

TEST(GpuHints, LetLossesBeSummedThatAreNumbers) {
  for (const std::string_view sum :
       {"total += loss.item()", "total += float(loss)", "total += loss.detach()", "total += loss.data",
        "losses.append(loss.item())", "total = total + loss.cpu().numpy()", "total += n"}) {
    EXPECT_THAT(
        kinds({"import torch\nfor x in y:\n    loss = f(x)\n    loss.backward()\n    " + std::string(sum) + "\n"}),
        IsEmpty())
        << sum;
  }
  EXPECT_THAT(kinds({"import torch\nfor x in y:\n    loss = f(x)\n    loss.backward()\n    loss = loss.item()\n    "
                     "total += loss\n"}),
              IsEmpty());
}

TEST(GpuHints, SeeLossesInLists) {
  EXPECT_THAT(kinds({"import torch\nfor x in y:\n    loss = f(x)\n    loss.backward()\n    losses.append(loss)\n"}),
              ElementsAre("loss-kept-with-graph"));
  EXPECT_THAT(kinds({"import torch\nfor x in y:\n    loss = f(x)\n    loss.backward()\n    total = total + loss\n"}),
              ElementsAre("loss-kept-with-graph"));
}

TEST(GpuHints, LetEvaluationBeUnderDecoratorsAndSwitches) {
  const std::string loop = "    model.eval()\n    for x in y:\n        out = model(x)\n";
  EXPECT_THAT(kinds({"import torch\n@torch.no_grad()\ndef f():\n" + loop}), IsEmpty());
  EXPECT_THAT(kinds({"import torch\ntorch.set_grad_enabled(False)\n", "def f():\n" + loop}), IsEmpty());
  EXPECT_THAT(kinds({"import torch\ndef f():\n" + loop}), ElementsAre("evaluation-without-no-grad"));
}

TEST(GpuHints, LetEvaluationNeedGradients) {
  EXPECT_THAT(kinds({"import torch\nmodel.eval()\nfor x in y:\n    score = model(x)\n    score.backward()\n"}),
              IsEmpty());
  EXPECT_THAT(kinds({"import torch\nmodel.eval()\nx = model(x)\nmodel.train()\nfor x in y:\n    out = model(x)\n"}),
              IsEmpty());
  EXPECT_THAT(kinds({"import torch\nfor p in model.parameters():\n    p.requires_grad = False\nmodel.eval()\nfor x in "
                     "y:\n    model(x)\n"}),
              IsEmpty());
}

TEST(GpuHints, DoNotJudgeModelsThatOthersPlace) {
  const std::string train =
      "optimizer = torch.optim.SGD(net.parameters())\nfor x, y in loader:\n    x = x.cuda()\n    loss = f(net(x), y)\n"
      "    loss.backward()\n    optimizer.step()\n";
  const std::string net = "class Net(nn.Module):\n    def forward(self, x): return x\nnet = Net()\n";
  EXPECT_THAT(kinds({"import torch\n" + net + train}), ElementsAre("model-not-moved"));
  EXPECT_THAT(kinds({"import torch\n" + net + "net = net.cuda()\n" + train}), IsEmpty());
  EXPECT_THAT(kinds({"import torch\n" + net + "place(net)\n" + train}), IsEmpty());
  EXPECT_THAT(kinds({"import torch\n" + net + "for m in [net, other]: m.cuda()\n" + train}), IsEmpty());
  EXPECT_THAT(kinds({"import torch\n" + net + "accelerator = Accelerator()\n" + train}), IsEmpty());
  EXPECT_THAT(kinds({"import torch\nfrom nets import make\nnet = make()\n" + train}), IsEmpty());
}

TEST(GpuHints, LetModelsWithStatedPrecisionBe) {
  for (const std::string_view arguments :
       {"\"a/b-7b\", load_in_4bit=True", "\"a/b-7b\", torch_dtype=torch.float16", "\"a/b-7b\", **kwargs", "\"gpt2\"",
        "name", "\"a/b-350m\"", "\"a/b-7b-gptq\"", "\"a/b-7b\", quantization_config=c", "\"a/b-0.5b\""}) {
    EXPECT_THAT(
        kinds({"import transformers\nm = AutoModelForCausalLM.from_pretrained(" + std::string(arguments) + ")\n"}),
        IsEmpty())
        << arguments;
  }
  EXPECT_THAT(kinds({"import transformers\nm = AutoModelForCausalLM.from_pretrained('a/b-1.5B').cuda()\n"}),
              ElementsAre("large-model-in-float32"));
  EXPECT_THAT(kinds({"import transformers\nm = AutoModelForCausalLM.from_pretrained('a/b-1.5B').half()\n"}), IsEmpty());
}

TEST(GpuHints, AreNotTakenFromStringsCommentsOrOtherCells) {
  EXPECT_THAT(kinds({"import torch\n\"\"\"\nfor x in y:\n    loss.backward()\n    total += loss\n\"\"\"\n"}),
              IsEmpty());
  EXPECT_THAT(kinds({"import torch\n", "%%writefile a.py\nfor x in y:\n    loss.backward()\n    total += loss\n"}),
              IsEmpty());
  EXPECT_THAT(kinds({"import torch\n", "%%time\nfor x in y:\n    loss.backward()\n    total += loss\n"}),
              ElementsAre("loss-kept-with-graph"));
}

TEST(GpuHints, LetListsOfOutputsBeEmptied) {
  const std::string loop =
      "import torch\nmodel.cuda()\nmodel.eval()\nwith torch.no_grad():\n    for x in y:\n        "
      "kept.append(model(x))\n";
  EXPECT_THAT(kinds({loop}), ElementsAre("outputs-kept-on-gpu"));
  EXPECT_THAT(kinds({loop + "        kept.clear()\n"}), IsEmpty());
}

}  // namespace
}  // namespace varve::notebooks
