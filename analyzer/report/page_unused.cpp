#include <algorithm>

#include "analyzer/report/html.h"
#include "analyzer/report/page.h"
#include "analyzer/report/text.h"
#include "analyzer/report/treemap.h"
#include "analyzer/report/words.h"
#include "core/base/text/calendar.h"
#include "core/base/text/safe_text.h"
#include "core/base/text/units.h"

namespace varve::report {
namespace {

struct Tile {
  std::string name;  // "" = bytes that no distribution owns
  double bytes = 0;
  char step = 'o';  // class of report.css
  std::string title;
};

struct Group {
  std::string name;
  double bytes = 0;
  std::vector<Tile> tiles;
  // For the table beside the picture.
  const usage::LayerFacts* layer = nullptr;
  std::uint64_t distributions = 0, unused = 0;
  double used_bytes = 0, unused_bytes = 0, no_data_bytes = 0;
};

constexpr double kSmallest = 26;  // square units of a tile that is still drawn on its own

// A distribution of several layers is drawn in the topmost: there lies what is seen of it last.
std::vector<Group> make_groups(const Report& report) {
  const auto& digest = report.snapshot.images[*report.current].digest;
  std::map<std::int64_t, Group> groups;  // -1: no layer known
  for (const auto& layer : report.snapshot.layers) {
    if (layer.image == digest) groups[layer.layer].layer = &layer;
  }
  for (const auto& row : report.rows) {
    for (const auto& package : row.use->packages) {
      if (package.image != digest || package.bytes == 0) continue;
      auto& group = groups[package.layers.empty() ? -1 : std::int64_t(package.layers.back())];
      const auto bytes = double(package.bytes);
      ++group.distributions;
      group.unused += row.unused ? 1 : 0;
      (row.no_data ? group.no_data_bytes : row.unused ? group.unused_bytes : group.used_bytes) += bytes;
      const auto said = row.no_data  ? std::string("no data")
                        : row.unused ? std::string("never used")
                        : row.share  ? percent_text(*row.share) + " of sessions"
                                     : "";
      group.tiles.push_back(
          {.name = row.use->name,
           .bytes = bytes,
           .step = use_step(row),
           .title = fmt::format("{}: {}, {}", visible(row.use->name, 60), human_bytes(package.bytes), said)});
      group.bytes += bytes;
    }
  }
  std::vector<Group> sorted;
  for (auto& [number, group] : groups) {
    group.name = number < 0 ? "no layer known" : fmt::format("layer {}", number);
    const double other = group.layer == nullptr ? 0 : double(group.layer->stream_bytes) - group.bytes;
    if (other > 0) {
      group.tiles.push_back(
          {.name = "",
           .bytes = other,
           .step = 'o',
           .title = fmt::format("other files of layer {}: {}", number, human_bytes(std::uint64_t(other)))});
      group.bytes += other;
    }
    std::stable_sort(group.tiles.begin(), group.tiles.end(),
                     [](const Tile& a, const Tile& b) { return a.bytes > b.bytes; });
    if (group.bytes > 0) sorted.push_back(std::move(group));
  }
  std::stable_sort(sorted.begin(), sorted.end(), [](const Group& a, const Group& b) { return a.bytes > b.bytes; });
  return sorted;
}

void put_box(std::string& out, const Box& box, std::string_view kind, std::string_view title) {
  put(out, "<rect class=\"{}\" x=\"{:.0f}\" y=\"{:.0f}\" width=\"{:.0f}\" height=\"{:.0f}\">", kind, box.x, box.y,
      std::max(1.0, box.width), std::max(1.0, box.height));
  if (!title.empty()) put(out, "<title>{}</title>", html(title));
  out += "</rect>";
}

void put_tiles(std::string& out, std::vector<Tile> tiles, Box box, double scale) {
  // Tiles too small to see are drawn as one, so that the area of the layer stays true.
  Tile small{.name = "", .bytes = 0, .step = 'o', .title = ""};
  std::size_t merged = 0;
  while (tiles.size() > 1 && tiles.back().bytes * scale < kSmallest) {
    small.bytes += tiles.back().bytes;
    tiles.pop_back();
    ++merged;
  }
  if (merged > 0) {
    small.title = fmt::format("{} small ones: {}", merged, human_bytes(std::uint64_t(small.bytes)));
    tiles.push_back(small);
    std::stable_sort(tiles.begin(), tiles.end(), [](const Tile& a, const Tile& b) { return a.bytes > b.bytes; });
  }
  std::vector<double> values;
  for (const auto& tile : tiles) values.push_back(tile.bytes);
  const auto boxes = squarify(values, box);
  for (std::size_t i = 0; i < tiles.size(); ++i) {
    const auto& at = boxes[i];
    put_box(out, at, std::string("s") + tiles[i].step, tiles[i].title);
    const auto name = visible(tiles[i].name, 40);
    const auto fits = std::size_t(std::max(0.0, (at.width - 8) / 6.4));
    if (at.height < 17 || fits < 3 || name.empty() || (characters(name) > fits && fits < 8)) continue;
    put(out, "<text class=\"t{}\" x=\"{:.0f}\" y=\"{:.0f}\">{}</text>", tiles[i].step, at.x + 4, at.y + 13,
        html(cut(name, fits)));
  }
}

std::string treemap(const std::vector<Group>& groups, std::string_view kind, double width, double height) {
  constexpr double kHead = 15;
  double total = 0;
  for (const auto& group : groups) total += group.bytes;
  std::vector<double> values;
  for (const auto& group : groups) values.push_back(group.bytes);
  const auto boxes = squarify(values, {0, 0, width, height});
  std::string out;
  put(out,
      "<svg class=\"map {}\" viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"Treemap of the image's bytes by "
      "layer and distribution; the table below says the same\">\n",
      kind, width, height);
  const double scale = width * height / total;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    auto box = boxes[i];
    if (box.width < 1 || box.height < 1) continue;
    const bool headed = box.width > 58 && box.height > 40;
    if (headed) {
      const auto text = fmt::format("{} · {}", groups[i].name, human_bytes(std::uint64_t(groups[i].bytes)));
      const auto fits = std::size_t((box.width - 6) / 6.6);
      put(out, "<text class=\"gl\" x=\"{:.0f}\" y=\"{:.0f}\">{}</text>", box.x + 3, box.y + 11.5,
          html(cut(characters(text) <= fits ? text : groups[i].name, fits)));
      box.y += kHead;
      box.height -= kHead;
    }
    put_tiles(out, groups[i].tiles, {box.x + 1, box.y, std::max(1.0, box.width - 2), std::max(1.0, box.height - 1)},
              scale);
    put_box(out, boxes[i], "g", "");
    out += '\n';
  }
  return out + "</svg>\n";
}

constexpr std::string_view kPatterns =
    "<svg class=\"defs\" aria-hidden=\"true\"><defs><pattern id=\"hatch\" width=\"6\" height=\"6\" "
    "patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\"><rect class=\"h0\" "
    "width=\"6\" height=\"6\"/><line class=\"h1\" x1=\"0\" y1=\"0\" x2=\"0\" y2=\"6\"/></pattern><pattern id=\"dots\" "
    "width=\"6\" height=\"6\" "
    "patternUnits=\"userSpaceOnUse\"><rect class=\"h0\" width=\"6\" height=\"6\"/><circle class=\"blank\" cx=\"3\" "
    "cy=\"3\" r=\"1.2\"/></pattern></defs></svg>\n";

std::string legend() {
  struct Entry {
    std::string_view kind, text;
  };
  constexpr Entry kEntries[] = {{"s0", "never used"}, {"s1", "in under 0.1 % of sessions"},
                                {"s2", "0.1 to 1 %"}, {"s3", "1 to 5 %"},
                                {"s4", "5 to 20 %"},  {"s5", "20 % and more"},
                                {"sn", "no data"},    {"so", "other files"}};
  std::string out = "<ul class=\"key\">";
  for (const auto& entry : kEntries)
    put(out,
        "<li><svg viewBox=\"0 0 14 14\" aria-hidden=\"true\"><rect class=\"{}\" width=\"14\" "
        "height=\"14\"/></svg>{}</li>",
        entry.kind, html(entry.text));
  return out + "</ul>\n";
}

std::string layer_table(std::vector<Group> groups) {
  std::string out =
      "<div class=\"wide\" role=\"region\" tabindex=\"0\" aria-label=\"Layers\"><table class=\"long\"><caption>The "
      "same as a table: installed bytes by layer, largest first</caption>\n<thead><tr><th "
      "scope=\"col\">Layer</th><th scope=\"col\" class=\"r l\">Compressed</th><th scope=\"col\" "
      "class=\"r\">Used</th><th scope=\"col\" class=\"r\">Never used</th><th "
      "scope=\"col\" class=\"r l\">No data</th><th scope=\"col\" class=\"r l\">Other files</th><th scope=\"col\" "
      "class=\"r\">Distributions</th><th scope=\"col\" class=\"m\">Made "
      "by</th></tr></thead>\n<tbody>\n";
  for (const auto& group : groups) {
    const auto bytes = [](double value) {
      return value < 1 ? std::string("&ndash;") : human_bytes(std::uint64_t(value));
    };
    const auto owned = group.used_bytes + group.unused_bytes + group.no_data_bytes;
    put(out,
        "<tr><th scope=\"row\">{}</th><td class=\"r l\">{}</td><td class=\"r\">{}</td><td class=\"r{}\">{}</td><td "
        "class=\"r l\">{}</td><td class=\"r l\">{}</td><td "
        "class=\"r\">{}</td><td class=\"m q\">{}</td></tr>\n",
        html(group.name), group.layer == nullptr ? "" : human_bytes(group.layer->compressed_bytes),
        bytes(group.used_bytes), group.unused_bytes > 0 ? " none" : "", bytes(group.unused_bytes),
        bytes(group.no_data_bytes), bytes(group.bytes - owned),
        group.unused == 0 ? number_text(group.distributions)
                          : fmt::format("{}, {} unused", number_text(group.distributions), number_text(group.unused)),
        group.layer == nullptr ? "" : html(group.layer->created_by, 60));
  }
  return out + "</tbody></table></div>\n";
}

// "" if there are none. What the operating system brings stands apart: it stays whatever is counted.
std::string unused_table(const Report& report, bool of_system, std::string_view name) {
  const auto largest = double(std::max<std::uint64_t>(1, report.rows[report.unused.front()].bytes));
  std::string out;
  put(out,
      "<div class=\"wide\" role=\"region\" tabindex=\"0\" aria-label=\"{0}\"><table class=\"long "
      "unused\"><caption>{0}, largest first. &ldquo;At most&rdquo;: the share of sessions that could still use it, "
      "at 95&nbsp;% confidence.</caption>\n<thead><tr><th scope=\"col\">Name</th><th scope=\"col\" "
      "class=\"r\">Installed</th><th scope=\"col\" class=\"r l\">Compressed</th><th scope=\"col\" class=\"r "
      "l\">Heard</th><th scope=\"col\" class=\"r\">At most</th><th scope=\"col\" class=\"l\">Last used</th><th "
      "scope=\"col\" class=\"b m\"><span class=\"sr\">Size, drawn</span></th><th scope=\"col\">Stays "
      "for</th></tr></thead>\n<tbody>\n",
      name);
  bool any = false;
  for (const auto i : report.unused) {
    const auto& row = report.rows[i];
    if (row.system != of_system) continue;
    any = true;
    const auto holder = holder_text(row);
    put(out,
        "<tr><th scope=\"row\">{} <span class=\"ver\">{}</span></th><td class=\"r\">{}</td><td class=\"r "
        "l\">{}</td><td class=\"r l\">0 of {}</td><td class=\"r\">{}</td><td class=\"l w\">{}</td>"
        "<td class=\"b m\">{}</td><td>{}</td></tr>\n",
        html(row.use->name, 80), html(row.package->version, 24), human_bytes(row.bytes),
        row.compressed_bytes > 0 ? human_bytes(row.compressed_bytes) : "", number_text(row.exposed_sessions),
        html(percent_text(*row.bound)), row.use->last_used == 0 ? "never seen" : day_text(row.use->last_used),
        bar(double(row.bytes) / largest, holder.empty() ? "lost" : "blank"),
        holder.empty() ? "<span class=\"none\">nothing: could go</span>" : html(holder));
  }
  return any ? out + "</tbody></table></div>\n" : "";
}

}  // namespace

std::string unused_section(const Report& report) {
  if (!report.current)
    return "<p>No image&rsquo;s packages are known, so nothing can be said of what nobody uses. <code>varve "
           "usage collect --image</code> reads them.</p>";
  if (report.known == 0)
    return "<p class=\"none\">No data: no session was heard on an image that has any of its distributions.</p>";
  if (report.unused.empty()) return "<p>Every distribution that could be seen was used.</p>";
  std::string out;
  put(out,
      "<p>{} of the {} distributions of {}{} were seen in no session, in any way: {} installed. {} of these could go, "
      "{}; the others are needed by something that is used, named by a notebook, CUDA, or of the operating "
      "system.</p>\n",
      number_text(report.unused_all.distributions), number_text(report.known),
      html(image_name(report.snapshot.images[*report.current])), unseen_text(report),
      human_bytes(report.unused_all.bytes), number_text(report.free.distributions), human_bytes(report.free.bytes));
  out += unused_table(report, false, "Never used");
  const auto system = unused_table(report, true, "Never used packages of the operating system");
  if (!system.empty()) out += "<h3>Of the operating system</h3>\n" + system;
  return out;
}

std::string layers_section(const Report& report) {
  if (!report.current) return "<p>No image&rsquo;s packages are known.</p>";
  const auto groups = make_groups(report);
  if (groups.empty()) return "<p>Nothing is known of the image&rsquo;s layers.</p>";
  std::string out(kPatterns);
  put(out,
      "<figure><figcaption>{}: area is installed bytes, colour is how many of the sessions used it. A distribution "
      "that lies in several layers is drawn in the "
      "topmost.</figcaption>\n{}",
      html(image_name(report.snapshot.images[*report.current])), legend());
  out += treemap(groups, "broad", 1130, 520);
  out += treemap(groups, "tall", 370, 620);
  out += "</figure>\n";
  return out + layer_table(groups);
}

}  // namespace varve::report
