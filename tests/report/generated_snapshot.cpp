#include "tests/report/generated_snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

namespace varve::report_test {
namespace {

// Distributions of a notebook image, roughly by use in public notebooks; their installed sizes in MiB, their layer, and
// what they need.
struct Known {
  const char* name;
  const char* imports;
  double mib;
  std::uint32_t layer;
  std::vector<std::string> needs = {};
  bool gpu = false;
};

const std::vector<Known>& known_distributions() {
  static const std::vector<Known> known{
      {"numpy", "numpy", 72, 6},
      {"pandas", "pandas", 98, 7, {"numpy", "python-dateutil", "pytz", "tzdata"}},
      {"matplotlib", "matplotlib", 41, 7, {"numpy", "pillow", "contourpy", "kiwisolver", "fonttools", "cycler"}},
      {"scikit-learn", "sklearn", 46, 7, {"numpy", "scipy", "joblib", "threadpoolctl"}},
      {"torch",
       "torch",
       1710,
       9,
       {"numpy", "nvidia-cublas-cu12", "nvidia-cudnn-cu12", "nvidia-cuda-runtime-cu12", "nvidia-nccl-cu12", "triton",
        "sympy", "networkx"},
       true},
      {"seaborn", "seaborn", 3, 7, {"numpy", "pandas", "matplotlib"}},
      {"transformers",
       "transformers",
       118,
       12,
       {"numpy", "huggingface-hub", "tokenizers", "safetensors", "regex", "requests", "tqdm"},
       true},
      {"tensorflow",
       "tensorflow",
       1890,
       10,
       {"numpy", "keras", "h5py", "grpcio", "protobuf", "tensorboard", "flatbuffers", "gast", "opt-einsum"},
       true},
      {"scipy", "scipy", 112, 6, {"numpy"}},
      {"tqdm", "tqdm", 0.6, 5},
      {"pillow", "PIL", 14, 6},
      {"requests", "requests", 0.9, 5, {"urllib3", "idna", "certifi", "charset-normalizer"}},
      {"xgboost", "xgboost", 310, 11, {"numpy", "scipy", "nvidia-nccl-cu12"}, true},
      {"lightgbm", "lightgbm", 9, 11, {"numpy", "scipy"}},
      {"datasets", "datasets", 4.8, 12, {"pyarrow", "pandas", "fsspec"}},
      {"opencv-python", "cv2", 176, 8, {"numpy"}},
      {"plotly", "plotly", 64, 8},
      {"torchvision", "torchvision", 28, 9, {"torch", "numpy", "pillow"}, true},
      {"huggingface-hub", "huggingface_hub", 3.4, 12, {"requests", "tqdm", "pyyaml", "fsspec"}},
      {"keras", "keras", 12, 10, {"numpy", "h5py"}},
      {"accelerate", "accelerate", 2.1, 12, {"torch"}, true},
      {"catboost", "catboost", 402, 11, {"numpy", "plotly", "graphviz"}, true},
      {"nltk", "nltk", 9, 13},
      {"joblib", "joblib", 2, 6},
      {"optuna", "optuna", 5, 13, {"sqlalchemy", "alembic", "colorlog"}},
      {"ipywidgets", "ipywidgets", 1, 5},
      {"statsmodels", "statsmodels", 38, 11, {"numpy", "scipy", "pandas", "patsy"}},
      {"beautifulsoup4", "bs4", 1.1, 13, {"soupsieve"}},
      {"timm", "timm", 11, 12, {"torch", "torchvision"}, true},
      {"peft", "peft", 2.3, 12, {"torch", "transformers"}, true},
      {"polars", "polars", 96, 14},
      {"pyarrow", "pyarrow", 122, 8, {"numpy"}},
      {"spacy", "spacy", 84, 14, {"thinc", "numpy"}},
      {"gensim", "gensim", 58, 14, {"numpy", "scipy", "smart-open"}},
      {"albumentations", "albumentations", 3, 14, {"opencv-python", "numpy"}},
      {"shap", "shap", 4, 14, {"numba", "numpy"}},
      {"wordcloud", "wordcloud", 1, 14, {"pillow", "matplotlib"}},
      {"networkx", "networkx", 13, 8},
      {"sympy", "sympy", 66, 8, {"mpmath"}},
      {"numba", "numba", 24, 8, {"llvmlite", "numpy"}, true},
      {"bokeh", "bokeh", 34, 15},
      {"geopandas", "geopandas", 2, 16, {"pandas", "shapely", "pyproj"}},
      {"folium", "folium", 1, 16, {"jinja2"}},
      {"librosa", "librosa", 2, 15, {"numba", "soundfile"}},
      {"cartopy", "cartopy", 12, 16, {"shapely", "pyproj"}},
      {"diffusers", "diffusers", 21, 12, {"torch", "huggingface-hub"}, true},
      {"jax", "jax", 9, 15, {"jaxlib"}, true},
      {"jaxlib", "jaxlib", 298, 15, {"numpy", "scipy"}, true},
      {"ray", "ray", 214, 17, {"grpcio", "protobuf"}},
      {"mlflow", "mlflow", 88, 17, {"flask", "sqlalchemy"}},
      {"google-cloud-bigquery", "google.cloud.bigquery", 2, 18, {"google-api-core", "google-auth"}},
      {"google-cloud-storage", "google.cloud.storage", 1, 18, {"google-api-core", "google-auth"}},
      {"google-cloud-aiplatform", "google.cloud.aiplatform", 61, 18, {"google-api-core", "google-cloud-storage"}},
      {"google-cloud-automl", "google.cloud.automl", 7, 18, {"google-api-core"}},
      {"google-cloud-videointelligence", "google.cloud.videointelligence", 3, 18, {"google-api-core"}},
      {"google-cloud-translate", "google.cloud.translate", 4, 18, {"google-api-core"}},
      {"nvidia-cublas-cu12", "nvidia.cublas", 412, 9, {}, true},
      {"nvidia-cudnn-cu12", "nvidia.cudnn", 664, 9, {}, true},
      {"nvidia-cuda-runtime-cu12", "nvidia.cuda_runtime", 3, 9, {}, true},
      {"nvidia-nccl-cu12", "nvidia.nccl", 176, 9, {}, true},
      {"nvidia-nvjpeg-cu12", "nvidia.nvjpeg", 9, 9, {}, true},
      {"triton", "triton", 206, 9, {}, true},
      {"cudf-cu12", "cudf", 5, 19, {"libcudf-cu12", "pandas", "pyarrow"}, true},
      {"libcudf-cu12", "libcudf", 988, 19, {}, true},
      {"cuml-cu12", "cuml", 12, 19, {"cudf-cu12"}, true},
      {"dask", "dask", 8, 17, {"fsspec", "toolz"}},
      {"distributed", "distributed", 6, 17, {"dask"}},
      {"pymc", "pymc", 9, 20, {"pytensor"}},
      {"pytensor", "pytensor", 17, 20, {"numpy"}},
      {"prophet", "prophet", 38, 20, {"cmdstanpy"}},
      {"cmdstanpy", "cmdstanpy", 1, 20},
      {"h2o", "h2o", 266, 20},
      {"fastai", "fastai", 3, 14, {"torch", "torchvision"}, true},
      {"deepchem", "deepchem", 11, 21, {"rdkit"}},
      {"rdkit", "rdkit", 118, 21, {"numpy"}},
      {"kfp", "kfp", 4, 18, {"google-cloud-storage"}},
      {"panel", "panel", 42, 15, {"bokeh"}},
      {"holoviews", "holoviews", 17, 15, {"panel"}},
      {"pyspark", "pyspark", 431, 21},
      {"vtk", "vtk", 297, 21},
      {"pyvista", "pyvista", 9, 21, {"vtk"}},
      {"scikit-image", "skimage", 32, 13, {"numpy", "scipy"}},
      {"pydicom", "pydicom", 12, 22},
      {"mne", "mne", 18, 22},
      {"nilearn", "nilearn", 24, 22, {"scikit-learn"}},
      {"tensorflow-text", "tensorflow_text", 18, 22, {"tensorflow"}, true},
      {"tensorflow-decision-forests", "tensorflow_decision_forests", 52, 22, {"tensorflow"}, true},
      {"python-dateutil", "dateutil", 1, 5},
      {"pytz", "pytz", 3, 5},
      {"tzdata", "tzdata", 2, 5},
      {"contourpy", "contourpy", 1, 7},
      {"kiwisolver", "kiwisolver", 5, 7},
      {"fonttools", "fontTools", 14, 7},
      {"protobuf", "google.protobuf", 3, 5},
      {"grpcio", "grpc", 17, 5},
      {"h5py", "h5py", 13, 10},
      {"tensorboard", "tensorboard", 18, 10},
      {"google-api-core", "google.api_core", 1, 18},
      {"google-auth", "google.auth", 1, 18},
      {"sqlalchemy", "sqlalchemy", 15, 13},
      {"pyyaml", "yaml", 1, 5},
      {"jinja2", "jinja2", 1, 5},
      {"urllib3", "urllib3", 1, 5},
  };
  return known;
}

constexpr std::uint32_t kLayers = 24;
constexpr double kMiB = 1024.0 * 1024.0;

class FleetMaker {
 public:
  explicit FleetMaker(const FleetShape& shape) : shape_(shape), random_(shape.seed) {}

  usage::Snapshot make() {
    snapshot_.window = {.first = kToday - shape_.days + 1, .last = kToday};
    make_days();
    make_images();
    for (std::uint32_t i = 0; i < shape_.distributions; ++i) make_distribution(i);
    std::sort(snapshot_.distributions.begin(), snapshot_.distributions.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
    make_layers();
    make_findings();
    return std::move(snapshot_);
  }

 private:
  double uniform() { return std::uniform_real_distribution<double>(0, 1)(random_); }
  std::uint64_t poisson(double mean) {
    return mean <= 0 ? 0 : std::uint64_t(std::poisson_distribution<std::int64_t>(mean)(random_));
  }

  // Weeks have weekends, years have Decembers, and the fleet grows.
  void make_days() {
    for (std::int32_t day = snapshot_.window.first; day <= snapshot_.window.last; ++day) {
      const double age = double(day - snapshot_.window.first) / std::max(1, shape_.days);
      const bool weekend = day % 7 == 2 || day % 7 == 3;
      const bool holidays = day % 365 > 350;
      const double mean =
          shape_.sessions_per_day * (0.75 + 0.5 * age) * (weekend ? 0.45 : 1.0) * (holidays ? 0.5 : 1.0);
      snapshot_.heard_days.push_back({.day = day, .sessions = poisson(mean)});
      heard_ += snapshot_.heard_days.back().sessions;
    }
  }

  void make_images() {
    double weights = 0;
    for (std::uint32_t i = 0; i < shape_.images; ++i) weights += weight(i);
    for (std::uint32_t i = 0; i < shape_.images; ++i) {
      usage::ImageFacts image;
      image.digest = digest_of(fmt::format("image {}", i));
      image.label = i == 7 ? "" : fmt::format("v{}", 143 - i);
      image.python = i < 8 ? "3.11.13" : "3.10.12";
      image.has_inventory = i != 9;
      image.heard = i + 1 == shape_.images && i > 0 ? 0 : std::uint64_t(double(heard_) * weight(i) / weights);
      image.launched =
          i + 1 == shape_.images ? 37 : std::uint64_t(double(image.heard) / (i < 3 ? 0.62 + 0.1 * i : 0.55 + 0.03 * i));
      image.gpu_sessions = image.heard * 3 / 10;
      image.gpu_used_sessions = image.gpu_sessions * 71 / 100;
      image.gpu_unused_seconds = (image.gpu_sessions - image.gpu_used_sessions) * 5'100;
      image.gpu_idle_seconds = image.gpu_sessions * 2'300;
      image.gpu_incapable_sessions = image.gpu_sessions * 12 / 100;
      image.gpu_incapable_seconds = image.gpu_incapable_sessions * 4'400;
      image.users = {.at_least = image.heard / 19, .at_most = image.heard / 7};
      snapshot_.images.push_back(image);
    }
  }
  static double weight(std::uint32_t image) { return image == 0 ? 0.6 : std::pow(0.82, image); }

  // Share of sessions at rank r, a shape fitted by hand to what public notebooks import.
  static double share_at(std::uint32_t rank) {
    const double r = rank + 1;
    return r <= 12 ? 0.68 / std::pow(r, 0.75) : 0.68 * std::pow(12.0, 0.75) / std::pow(r, 1.5);
  }

  static std::string fake_name(std::uint32_t i) {
    constexpr auto kFirst = std::to_array<const char*>(
        {"google-cloud", "opentelemetry", "types", "jupyter", "azure", "sphinxcontrib", "apache-airflow", "pytest",
         "langchain", "tensorflow", "dask", "flask", "aws-cdk", "scikit", "py", "geo"});
    constexpr auto kSecond = std::to_array<const char*>(
        {"vision", "exporter", "tools", "dashboard", "core", "serializing", "schema", "monitoring", "dataflow",
         "events", "proxy", "testing", "metrics", "fields", "kernels", "pubsub", "secrets", "formats"});
    return fmt::format(
        "{}-{}{}", kFirst[i % kFirst.size()], kSecond[i / kFirst.size() % kSecond.size()],
        i < kFirst.size() * kSecond.size() ? "" : std::to_string(i / (kFirst.size() * kSecond.size()) + 1));
  }

  void make_distribution(std::uint32_t i) {
    const auto& known = known_distributions();
    usage::DistributionUse use;
    Known what{.name = "", .imports = "", .mib = 0, .layer = 0};
    if (i < known.size()) {
      what = known[i];
      use.name = what.name;
    } else {
      use.name = fake_name(i - std::uint32_t(known.size()));
      what.mib = std::exp(uniform() * 5.5 - 1.5);
      what.layer = 5 + i % 18;
    }
    use.display_name = use.name;
    if (use.name == "opencv-python") use.shared_with = {"opencv-python-headless"};
    make_packages(use, what, i);
    make_use(use, i);
    if (i % 9 == 4 && i > 20) make_transitive(use);
    snapshot_.distributions.push_back(std::move(use));
  }

  void make_packages(usage::DistributionUse& use, const Known& what, std::uint32_t i) {
    const bool debian = i % 23 == 22;
    for (std::uint32_t image = 0; image < shape_.images; ++image) {
      if (!snapshot_.images[image].has_inventory || (i % 31 == 30 && image < 2) ||
          (i % 29 == 28 && image + 1 < shape_.images))
        continue;
      usage::PackageFacts package;
      package.image = snapshot_.images[image].digest;
      package.version = fmt::format("{}.{}.{}", 1 + i % 4, (12 - image / 2) % 20, (i * 7 + image) % 5);
      package.source = debian ? "dpkg" : "pip";
      package.files = std::uint64_t(what.mib * 9) + 5;
      package.bytes = std::uint64_t(what.mib * kMiB * (1 - 0.01 * image));
      package.compressed_bytes = package.bytes * 3 / 10;
      package.layers = {what.layer};
      if (!debian) package.imports = {*what.imports != 0 ? what.imports : use.name};
      package.required = what.needs;
      package.gpu = what.gpu;
      use.packages.push_back(std::move(package));
    }
  }

  bool heard_on(const Digest& digest) const {
    return std::any_of(snapshot_.images.begin(), snapshot_.images.end(),
                       [&](const auto& image) { return image.digest == digest && image.heard > 0; });
  }

  void make_use(usage::DistributionUse& use, std::uint32_t i) {
    // The tail is not used at all, as in every real image.
    const bool never = i > 40 && (i % 3 == 0 || uniform() < 0.25);
    const bool heard = std::any_of(use.packages.begin(), use.packages.end(),
                                   [&](const auto& package) { return heard_on(package.image); });
    double share = never || !heard ? 0 : share_at(i) * (0.8 + 0.4 * uniform());
    if (i > 60 && !never) share *= 0.05;
    const double slope = i % 7 == 3 ? 1.6 : i % 11 == 6 ? -1.7 : 0;
    for (const auto& day : snapshot_.heard_days) {
      const double age = double(day.day - snapshot_.window.first) / std::max(1, shape_.days);
      const double today = share * std::max(0.0, 1 + slope * (age - 0.5));
      const auto sessions = std::min(day.sessions, poisson(double(day.sessions) * today));
      if (sessions == 0) continue;
      use.days.push_back({.day = day.day, .sessions = sessions});
      use.sessions += sessions;
    }
    use.direct = std::uint64_t(double(use.sessions) * (i < 30 ? 0.55 + 0.4 * uniform() : uniform()));
    use.transitive_only = use.sessions - use.direct;
    use.session_copy = i == 5 || i == 29 ? use.sessions * 6 / 10 : use.sessions / 50;
    use.image_copy = use.sessions - use.session_copy;
    use.static_sessions = use.direct;
    use.users = {.at_least = use.sessions / 21, .at_most = use.sessions / 6};
    if (use.sessions > 0) {
      use.first_used = use.days.front().day;
      use.last_used = use.days.back().day;
      use.modules[use.name] = use.sessions;
    }
    use.notebooks = i < 60 ? std::uint64_t(2700 * share_at(i) * 0.7) : (i % 17 == 9 ? 41 : 0);
    use.notebooks_optional = use.notebooks / 8;
    if (use.transitive_only > 0 && i > 0) use.importers["pandas"] = use.transitive_only * 2 / 3;
    if (use.transitive_only > 2 && i > 3) use.importers["scikit-learn"] = use.transitive_only / 4;
    if (use.transitive_only > 2 && i > 12) use.importers["transformers"] = use.transitive_only / 5;
  }

  static void make_transitive(usage::DistributionUse& use) {
    use.transitive_only = use.sessions;
    use.direct = 0;
    use.static_sessions = 0;
    use.notebooks = 0;
    use.notebooks_optional = 0;
  }

  void make_layers() {
    std::vector<std::uint64_t> owned(kLayers, 0);
    for (const auto& use : snapshot_.distributions) {
      for (const auto& package : use.packages) {
        if (package.image == snapshot_.images[0].digest) owned[package.layers.front()] += package.bytes;
      }
    }
    for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
      const auto stream = owned[layer] + std::uint64_t((layer < 4 ? 260 : 6) * kMiB);
      snapshot_.layers.push_back(
          {.image = snapshot_.images[0].digest,
           .layer = layer,
           .digest = digest_of(fmt::format("layer {}", layer)),
           .compressed_bytes = stream * 3 / 10,
           .stream_bytes = stream,
           .created_by = layer < 4 ? "RUN apt-get install -y …" : "RUN uv pip install --system -r /requirements.txt"});
    }
  }

  void make_findings() {
    snapshot_.failed = {{"einops", 812, {60, 130}, kToday - 1, "einops"},
                        {"lightning.pytorch", 530, {44, 90}, kToday, "lightning"},
                        {"unsloth", 410, {39, 77}, kToday, ""},
                        {"bitsandbytes", 288, {31, 60}, kToday - 2, "bitsandbytes"},
                        {"google.colab", 190, {20, 48}, kToday - 3, ""},
                        {"sentence_transformers", 120, {17, 30}, kToday - 1, "sentence-transformers"}};
    snapshot_.reinstalls = {{"transformers", "4.44.0", "4.53.1", "upgrade", 2310, {190, 420}},
                            {"numpy", "2.1.0", "1.26.4", "downgrade", 890, {88, 170}},
                            {"seaborn", "0.12.2", "0.13.2", "upgrade", 240, {30, 61}},
                            {"torch", "2.6.0+cu124", "2.6.0+cu124", "same", 122, {18, 29}},
                            {"einops", "", "0.8.0", "new", 640, {51, 104}}};
    snapshot_.hints = {
        {"titanic/exploration.ipynb", "loss-kept-with-graph",
         "`total += loss` keeps the graph of every step: add loss.item()", 14, 9},
        {"nlp/fine-tune-bert.ipynb", "evaluation-without-no-grad", "evaluation runs without torch.no_grad()", 22, 3},
        {"vision/resnet-baseline.ipynb", "model-not-moved", "tensors are moved to the GPU, the model is not", 8, 1},
        {"llm/prompting.ipynb", "one-gpu-of-several", "two GPUs are present, only cuda:0 is named", 5, 2}};
    snapshot_.notebooks = {{"tabular/eda.ipynb", 3, "python", {"pandas", "matplotlib"}, false},
                           {"tabular/feature-work.ipynb", 1, "python", {"pandas", "scikit-learn"}, false},
                           {"nlp/fine-tune-bert.ipynb", 1, "python", {"torch", "transformers"}, true}};
    snapshot_.unresolved = {{"kaggle_datasets", 130}, {"xformers.ops", 44}, {"my_team_utils", 2}};
    snapshot_.notebooks_scanned = 3500;
    snapshot_.notebooks_distinct = 2703;
    snapshot_.gpu_models = {{"Tesla P100-PCIE-16GB", 9000}, {"Tesla T4", 21000}, {"NVIDIA L4", 2400}};
    snapshot_.hidden_failed_names = 37;
    snapshot_.quarantined = 3;
  }

  const FleetShape shape_;
  std::mt19937 random_;
  usage::Snapshot snapshot_;
  std::uint64_t heard_ = 0;
};

}  // namespace

usage::Snapshot fleet_snapshot(const FleetShape& shape) { return FleetMaker(shape).make(); }

usage::Snapshot hostile_snapshot() {
  const std::vector<std::string> names{
      "<script>window.pwned=1</script>",
      "\"><img src=x onerror=window.pwned=2>",
      "'onmouseover='window.pwned=3'",
      "</td></table></script></style><!--",
      "]]>&amp;&#60;b&#62;",
      "=HYPERLINK(\"http://198.51.100.1\";\"x\")",
      "+1+1",
      "-2+3",
      "@SUM(1,2)",
      "\xE2\x80\xAEgnp.exe",
      std::string("nul\0byte\x1b[31m\r\nline", 18),
      "\xFF\xFE not utf-8 \xC3",
      "\xF0\x9F\x92\xA9\xE2\x80\x8B zero\xE2\x81\xA6width",
      std::string(100'000, 'W'),
      "javascript:alert(1)",
      "__proto__",
      "constructor",
  };
  usage::Snapshot snapshot;
  snapshot.window = {.first = kToday - 29, .last = kToday};
  usage::ImageFacts image;
  image.digest = digest_of("hostile");
  image.label = names[0] + names[9];
  image.has_inventory = true;
  image.launched = 90;
  image.heard = 60;
  image.gpu_sessions = 5;
  image.users = {3, 9};
  snapshot.images = {image};
  for (const auto& name : names) {
    usage::DistributionUse use;
    use.name = name;
    use.display_name = name;
    usage::PackageFacts package;
    package.image = image.digest;
    package.version = name;
    package.source = name;
    package.bytes = name.size() * 1000;
    package.imports = {name};
    package.layers = {4'000'000'000u};
    package.required = {name};
    use.packages = {package};
    use.sessions = name.size() % 7 * 9;
    use.transitive_only = use.sessions;
    use.importers[name] = use.sessions;
    use.shared_with = {name, name};
    use.modules[name] = use.sessions;
    use.notebooks = name.size() % 3;
    if (use.sessions > 0)
      use.days = {{.day = kToday - 400, .sessions = 1}, {.day = kToday - 3, .sessions = use.sessions}};
    use.first_used = kToday - 400;
    use.last_used = kToday - 3;
    snapshot.distributions.push_back(use);
    snapshot.failed.push_back({name, 30, {2, 3}, kToday, name});
    snapshot.reinstalls.push_back({name, name, name, name, 30, {2, 3}});
    snapshot.hints.push_back({name, name, name, 1, 1});
    snapshot.notebooks.push_back({name, 1, name, {name}, false});
    snapshot.unresolved[name] = 40;
    snapshot.gpu_models[name] = 3;
  }
  snapshot.layers = {{image.digest, 0, digest_of("layer"), 1000, 2000, names[0]}};
  snapshot.notebooks_scanned = 20;
  return snapshot;
}

}  // namespace varve::report_test
