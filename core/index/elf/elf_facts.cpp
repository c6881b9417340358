#include "core/index/elf/elf_facts.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "core/base/byte_range.h"

namespace varve::index {
namespace {

constexpr std::size_t kIdentBytes = 16;
constexpr std::uint64_t kMaxSegments = 4096;
constexpr std::uint64_t kMaxSections = 65'536;
constexpr std::uint64_t kMaxDynamicBytes = 1024 * 1024;
constexpr std::uint64_t kMaxInterpreterBytes = 4096;
constexpr std::uint64_t kMaxDynamicWindowBytes =
    1024 * 1024;  // in front of the dynamic section: patchelf puts the new string table there
constexpr std::uint64_t kMaxSearchBytes =
    256ull * 1024 * 1024;  // of the file: beyond it no strings are looked for behind the head
constexpr std::size_t kMaxFoundText =
    32 * 1024;  // a string that is kept because it looks like a library's name or path; TensorFlow has one of 16 kB
constexpr std::size_t kMaxFoundTextBytes = 4 * 1024 * 1024;  // of them all
constexpr std::size_t kMaxFoundNames = 1024;            // places where the name of a section with device code was seen
constexpr std::size_t kJointBytes = 2 * kMaxFoundText;  // looked at again with the next piece
constexpr std::uint64_t kZeroStep = 64 * 1024;
constexpr std::array<std::byte, kZeroStep> kZeros{};

constexpr std::uint16_t kPhnumElsewhere = 0xFFFF;     // PN_XNUM
constexpr std::uint16_t kShstrndxElsewhere = 0xFFFF;  // SHN_XINDEX
constexpr std::uint32_t kLoad = 1, kDynamic = 2, kInterp = 3;
constexpr std::uint32_t kExecutable = 1;
enum DynamicTag : std::uint64_t {
  kNull = 0,
  kNeeded = 1,
  kStrtab = 5,
  kStrsz = 10,
  kSoname = 14,
  kRpath = 15,
  kRunpath = 29
};

constexpr std::string_view kElfMagic = "\177ELF";
// Magic 0xBA55ED50, version 1, header of 16 bytes.
constexpr std::string_view kFatbinHeader("\x50\xED\x55\xBA\x01\x00\x10\x00", 8);
// With the NUL that ends them in a string table.
constexpr std::array<std::string_view, 3> kDeviceSections = {std::string_view(".nv_fatbin\0", 11),
                                                             std::string_view("__nv_relfatbin\0", 15),
                                                             std::string_view(".nvFatBinSegment\0", 17)};
constexpr std::size_t kLongestNeedle = 17;
constexpr std::array<std::string_view, 3> kTextNeedles = {".so", "$OR", "/li"};

// Sixteen bytes compared at once, on any machine the compiler knows.
using Vector = unsigned char __attribute__((vector_size(16)));
constexpr std::size_t kBlockBytes = 4 * sizeof(Vector);

Vector load_vector(const std::byte* at) {
  Vector value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

bool any(Vector mask) {
  std::array<std::uint64_t, 2> halves;
  std::memcpy(halves.data(), &mask, sizeof halves);
  return (halves[0] | halves[1]) != 0;
}

// Calls `check(i)` for every place of `bytes` in whose block `may_match(vector, the same shifted by one)` is true
// anywhere, and for those at the end that fill no block. Returns early if `check` returns true.
template <typename MayMatch, typename Check>
void for_likely_places(ByteView bytes, const MayMatch& may_match, const Check& check) {
  std::size_t i = 0;
  for (; i + kBlockBytes + 1 <= bytes.size(); i += kBlockBytes) {
    Vector found{};
    for (std::size_t k = i; k < i + kBlockBytes; k += sizeof(Vector))
      found |= may_match(load_vector(bytes.data() + k), load_vector(bytes.data() + k + 1));
    if (!any(found)) [[likely]]
      continue;
    for (std::size_t k = i; k < i + kBlockBytes; ++k) {
      if (check(k)) return;
    }
  }
  for (; i < bytes.size(); ++i) {
    if (check(i)) return;
  }
}

bool is_printable(std::byte byte) { return byte >= std::byte(0x20) && byte != std::byte(0x7F); }

}  // namespace

std::uint64_t text_bytes(const ElfFacts& facts) {
  std::uint64_t bytes =
      facts.interpreter.size() + facts.soname.size() + facts.rpath.size() + facts.runpath.size() + facts.broken.size();
  for (const auto& name : facts.needed) bytes += name.size();
  return bytes;
}

// Tables are asked for as soon as it is known where they lie; they are kept when they come by, or taken from what was
// kept of the head. A piece of content is cut at the end of every table that is awaited, so that what one table says is
// known before the next byte is looked at.
class ElfFactsReader::Impl {
 public:
  void begin(std::uint64_t size) {
    *this = Impl(std::move(head_));
    size_ = size;
    ended_ = size_ < kElfMagic.size();
    if (!ended_) want(Table::kIdent, {0, std::min<std::uint64_t>(size_, kIdentBytes)});
  }

  void feed(ByteView content) {
    if (ended_) return;
    if (content.size() > size_ - at_) {
      extra_ = true;
      content = content.first(size_ - at_);
    }
    while (!content.empty() && !ended_) {
      auto length = std::uint64_t(content.size());
      for (const auto& awaited : awaited_) length = std::min(length, awaited.range.end() - at_);
      for (const auto& range : search_ranges_) {
        if (range.offset > at_) length = std::min(length, range.offset - at_);
        if (range.contains(at_)) length = std::min(length, range.end() - at_);
      }
      take(content.first(length));
      content = content.subspan(length);
      hand_over();
    }
  }

  void feed_zeros(std::uint64_t count) {
    if (ended_) return;
    if (count > size_ - at_) {
      extra_ = true;
      count = size_ - at_;
    }
    // Whatever is kept or looked for near both ends sees zeros; the middle is passed over where nothing is awaited.
    while (count != 0 && !ended_) {
      const auto step = std::min(count, kZeroStep);
      feed(ByteView(kZeros).first(step));
      count -= step;
      if (count <= kZeroStep || (keeps_head_ && head_.size() < kMaxElfHeadBytes)) continue;
      auto passed = count - kZeroStep;
      for (const auto& awaited : awaited_)
        passed = std::min(passed, awaited.range.offset > at_ ? awaited.range.offset - at_ : 0);
      at_ += passed;
      count -= passed;
    }
  }

  std::shared_ptr<const ElfFacts> finish() {
    if (!is_elf_) return nullptr;
    if (at_ < size_) damaged("the file ends before its size");
    if (extra_) damaged("the file goes on behind its size");
    look_up_sections();
    collect_texts();
    return std::make_shared<const ElfFacts>(std::move(facts_));
  }

  Impl() = default;

 private:
  enum class Table : std::uint8_t {
    kIdent,
    kHeader,
    kSegments,
    kFirstSection,
    kSections,
    kInterpreter,
    kWindow,
    kDynamic,
    kText
  };

  struct Awaited {
    Table table;
    ByteRange range;
    Bytes content;
    std::size_t text = 0;  // kText: which
  };

  // A string of the dynamic section.
  struct Text {
    std::uint64_t tag = 0;
    std::uint64_t file_offset = 0;
    std::optional<std::string> value;
  };

  struct Segment {
    std::uint64_t type = 0, flags = 0, file_offset = 0, address = 0, file_bytes = 0;
  };

  explicit Impl(Bytes head) : head_(std::move(head)) { head_.clear(); }

  // The first thing that is wrong is what counts.
  void damaged(std::string_view reason) {
    if (facts_.broken.empty()) facts_.broken = reason;
  }

  // --- what is kept
  // -------------------------------------------------------------------------------------------------------------------------

  void take(ByteView content) {
    if (is_elf_) {
      search_device_code(content);
      search_texts(content);
      remember(content);
    }
    if (keeps_head_ && head_.size() < kMaxElfHeadBytes)
      append(head_, content.first(std::min(content.size(), kMaxElfHeadBytes - head_.size())));
    for (auto& awaited : awaited_) {
      const auto begin = std::max(at_, awaited.range.offset);
      const auto end = std::min(at_ + content.size(), awaited.range.end());
      if (begin >= end) continue;
      auto part = content.subspan(begin - at_, end - begin);
      if (awaited.table == Table::kText) {
        if (const auto end = as_text(part).find('\0'); end != std::string_view::npos) part = part.first(end + 1);
        captured_text_bytes_ += part.size();
      }
      append(awaited.content, part);
    }
    at_ += content.size();
    if (captured_text_bytes_ > kMaxElfTextBytes) {
      damaged("more text in its dynamic section than 64 KiB");
      std::erase_if(awaited_, [](const Awaited& awaited) { return awaited.table == Table::kText; });
      captured_text_bytes_ = 0;
      texts_.clear();
    }
  }

  // The end of what came by, for what goes on in the next piece.
  void remember(ByteView content) {
    const auto kept = search_ranges_.empty() ? kLongestNeedle : kJointBytes;
    if (content.size() >= kept) {
      const auto end = content.last(kept);
      recent_.assign(end.begin(), end.end());
      return;
    }
    append(recent_, content);
    if (recent_.size() > 2 * kept) recent_.erase(recent_.begin(), recent_.end() - std::ptrdiff_t(kept));
  }

  // What is still to come is awaited. False if it came by already and was not kept.
  bool want(Table table, ByteRange range, std::size_t text = 0) {
    Awaited awaited{.table = table, .range = range, .content = {}, .text = text};
    if (range.offset < at_) {
      const auto kept = std::min<std::uint64_t>(head_.size(), at_);
      if (range.offset >= kept || (kept < at_ && range.end() > kept)) return false;
      awaited.content = to_bytes(ByteView(head_).subspan(range.offset, std::min(range.end(), kept) - range.offset));
    }
    awaited_.push_back(std::move(awaited));
    return true;
  }

  // Reads the tables that are complete; each may ask for more.
  void hand_over() {
    for (bool again = true; again;) {
      again = false;
      for (std::size_t i = 0; i < awaited_.size(); ++i) {
        const auto& next = awaited_[i];
        const bool ended_text =
            next.table == Table::kText && !next.content.empty() && next.content.back() == std::byte(0);
        if (next.content.size() < next.range.length && !ended_text) continue;
        const auto complete = std::move(awaited_[i]);
        awaited_.erase(awaited_.begin() + std::ptrdiff_t(i));
        read(complete);
        again = true;
        break;
      }
    }
  }

  void read(const Awaited& table) {
    switch (table.table) {
      case Table::kIdent:
        return read_ident(table.content);
      case Table::kHeader:
        return read_header(table.content);
      case Table::kSegments:
        return read_segments(table.content);
      case Table::kFirstSection:
        return read_first_section(table.content);
      case Table::kSections:
        return append(sections_, table.content);
      case Table::kInterpreter:
        return read_interpreter(table.content);
      case Table::kWindow:
        window_ = table.content;
        window_offset_ = table.range.offset;
        return;
      case Table::kDynamic:
        return read_dynamic(table.content);
      case Table::kText:
        texts_.at(table.text).value = text_at(table.content, 0);
        return;
    }
  }

  // --- the file's own tables
  // ------------------------------------------------------------------------------------------------------------

  template <std::integral T>
  T number(ByteView bytes, std::size_t at) const {
    auto value = load_le<T>(bytes.data() + at);
    if (!big_endian_) return value;
    T turned = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) turned = T(turned << 8 | (value & 0xFF)), value = T(value >> 8);
    return turned;
  }
  // An address, an offset or a size.
  std::uint64_t word(ByteView bytes, std::size_t at_64, std::size_t at_32) const {
    return facts_.is_64 ? number<std::uint64_t>(bytes, at_64) : number<std::uint32_t>(bytes, at_32);
  }
  std::size_t header_bytes() const { return facts_.is_64 ? 64 : 52; }
  std::size_t segment_bytes() const { return facts_.is_64 ? 56 : 32; }
  std::size_t section_bytes() const { return facts_.is_64 ? 64 : 40; }

  void read_ident(ByteView ident) {
    if (ident.size() < kElfMagic.size() || as_text(ident.first(kElfMagic.size())) != kElfMagic) {
      ended_ = true;
      return;
    }
    is_elf_ = true;
    if (ident.size() < kIdentBytes) return stop("the file ends inside its header");
    const auto size_class = std::uint8_t(ident[4]);
    const auto order = std::uint8_t(ident[5]);
    if (size_class != 1 && size_class != 2) return stop("neither a 32 nor a 64 bit file");
    if (order != 1 && order != 2) return stop("an unknown byte order");
    facts_.is_64 = size_class == 2;
    big_endian_ = order == 2;
    if (header_bytes() > size_) return stop("the file ends inside its header");
    want(Table::kHeader, {0, header_bytes()});
  }

  // No table can be found; device code may still come by.
  void stop(std::string_view reason) {
    damaged(reason);
    keeps_head_ = false;
  }

  void read_header(ByteView header) {
    facts_.type = number<std::uint16_t>(header, 16);
    facts_.machine = number<std::uint16_t>(header, 18);
    const auto tail = facts_.is_64 ? std::size_t(52) : std::size_t(40);  // where e_ehsize lies
    want_sections(word(header, 40, 32), number<std::uint16_t>(header, tail + 6),
                  number<std::uint16_t>(header, tail + 8), number<std::uint16_t>(header, tail + 10));

    const auto offset = word(header, 32, 28);
    const auto entry_bytes = number<std::uint16_t>(header, tail + 2);
    const auto count = number<std::uint16_t>(header, tail + 4);
    if (offset == 0 || count == 0) {
      keeps_head_ = false;
      return;
    }
    if (entry_bytes != segment_bytes()) return stop("program headers of an unknown size");
    if (count == kPhnumElsewhere || count > kMaxSegments) return stop("more than 4096 program headers");
    const ByteRange range{offset, count * segment_bytes()};
    if (!range.fits_in(size_)) return stop("program headers outside the file");
    if (!want(Table::kSegments, range)) return stop("program headers inside the header");
  }

  void want_sections(std::uint64_t offset, std::uint16_t entry_bytes, std::uint16_t count, std::uint16_t names) {
    if (offset == 0) return;
    if (entry_bytes != section_bytes()) return damaged("section headers of an unknown size");
    sections_offset_ = offset;
    section_count_ = count;
    names_section_ = names;
    if (count == 0 || names == kShstrndxElsewhere) {
      // The first section header says how many they are.
      const ByteRange first{offset, section_bytes()};
      if (!first.fits_in(size_) || !want(Table::kFirstSection, first)) damaged("section headers outside the file");
      return;
    }
    want_sections_from(0);
  }

  void read_first_section(ByteView section) {
    if (section_count_ == 0) section_count_ = word(section, 32, 20);
    if (names_section_ == kShstrndxElsewhere) names_section_ = number<std::uint32_t>(section, facts_.is_64 ? 40 : 24);
    if (section_count_ == 0) return;
    sections_ = to_bytes(section);
    want_sections_from(1);
  }

  void want_sections_from(std::uint64_t first) {
    if (section_count_ > kMaxSections) return damaged("more than 65536 sections");
    if (!ByteRange{sections_offset_, section_count_ * section_bytes()}.fits_in(size_) ||
        !want(Table::kSections,
              {sections_offset_ + first * section_bytes(), (section_count_ - first) * section_bytes()}))
      damaged("section headers outside the file");
  }

  void read_segments(ByteView table) {
    std::optional<ByteRange> interpreter;
    std::optional<ByteRange> dynamic;
    for (std::size_t at = 0; at < table.size(); at += segment_bytes()) {
      const auto segment = table.subspan(at, segment_bytes());
      const Segment read{.type = number<std::uint32_t>(segment, 0),
                         .flags = number<std::uint32_t>(segment, facts_.is_64 ? 4 : 24),
                         .file_offset = word(segment, 8, 4),
                         .address = word(segment, 16, 8),
                         .file_bytes = word(segment, 32, 16)};
      if (read.type == kLoad) loads_.push_back(read);
      if (read.type == kInterp && !interpreter) interpreter = {read.file_offset, read.file_bytes};
      if (read.type == kDynamic && !dynamic) dynamic = {read.file_offset, read.file_bytes};
    }
    if (interpreter) {
      if (!interpreter->fits_in(size_) || interpreter->length > kMaxInterpreterBytes)
        damaged("the program interpreter's name outside the file, or too long");
      else if (!want(Table::kInterpreter, *interpreter))
        damaged("the program interpreter's name lies in front of the program headers");
    }
    if (!dynamic || dynamic->length == 0) {
      keeps_head_ = false;
      return;
    }
    if (!dynamic->fits_in(size_)) return stop("dynamic section outside the file");
    if (dynamic->length > kMaxDynamicBytes) return stop("a dynamic section of more than 1 MiB");
    if (!want(Table::kDynamic, *dynamic))
      return stop("the dynamic section lies in front of the program headers and behind the file's head");
    keep_texts_before(dynamic->offset);
  }

  // Behind the head: all right in front of the dynamic section, and what is found in the other segments. Code is passed
  // over, but some linkers put everything that is not written to into one segment with the code, the first.
  void keep_texts_before(std::uint64_t dynamic_offset) {
    const auto begin = std::max<std::uint64_t>(at_, kMaxElfHeadBytes);
    if (dynamic_offset <= begin) return;
    const auto window = std::max(begin, dynamic_offset - std::min(dynamic_offset, kMaxDynamicWindowBytes));
    want(Table::kWindow, {window, dynamic_offset - window});

    std::vector<ByteRange> code;
    for (const auto& load : loads_) {
      if (&load != &loads_.front() && (load.flags & kExecutable) != 0 &&
          ByteRange{load.file_offset, load.file_bytes}.fits_in(size_))
        code.push_back({load.file_offset, load.file_bytes});
    }
    std::ranges::sort(code, {}, &ByteRange::offset);
    const auto end = std::min({window + kMaxFoundText, dynamic_offset, kMaxSearchBytes});
    auto at = begin;
    for (const auto& range : code) {
      if (range.offset >= end) break;
      if (range.offset > at) search_ranges_.push_back({at, range.offset - at});
      at = std::max(at, range.end());
    }
    if (at < end) search_ranges_.push_back({at, end - at});
  }

  void read_interpreter(ByteView name) {
    const auto text = text_at(name, 0);
    if (!text) damaged("the program interpreter's name has no end");
    facts_.interpreter = text.value_or("");
  }

  void read_dynamic(ByteView table) {
    search_ranges_.clear();
    std::optional<std::uint64_t> strings;
    std::optional<std::uint64_t> strings_bytes;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> wanted;  // tag, offset among the strings
    std::size_t needed = 0;
    const std::size_t entry_bytes = facts_.is_64 ? 16 : 8;
    for (std::size_t at = 0; at + entry_bytes <= table.size(); at += entry_bytes) {
      const auto tag = word(table, at, at);
      const auto value = word(table, at + 8, at + 4);
      if (tag == kNull) break;
      if (tag == kStrtab) strings = value;
      if (tag == kStrsz) strings_bytes = value;
      if (tag == kNeeded && ++needed > kMaxNeededLibraries) {
        damaged("more than 4096 needed libraries");
        continue;
      }
      if (tag == kNeeded || tag == kSoname || tag == kRpath || tag == kRunpath) wanted.emplace_back(tag, value);
    }
    if (!wanted.empty()) {
      if (!strings || !strings_bytes) {
        damaged("a dynamic section without string table");
      } else {
        want_texts(wanted, *strings, *strings_bytes);
      }
    }
    keeps_head_ = false;
  }

  void want_texts(const std::vector<std::pair<std::uint64_t, std::uint64_t>>& wanted, std::uint64_t address,
                  std::uint64_t bytes) {
    const auto segment = std::ranges::find_if(loads_, [&](const Segment& load) {
      return ByteRange{load.address, load.file_bytes}.contains(address);
    });
    if (segment == loads_.end()) return damaged("dynamic string table outside all segments");
    const auto in_segment = address - segment->address;
    bytes = std::min(bytes, segment->file_bytes - in_segment);
    if (!ByteRange{segment->file_offset, in_segment + bytes}.fits_in(size_))
      return damaged("dynamic string table outside the file");
    const auto table = segment->file_offset + in_segment;
    for (const auto& [tag, offset] : wanted) {
      if (offset >= bytes) {
        damaged("a name outside the dynamic string table");
        continue;
      }
      texts_.push_back({.tag = tag, .file_offset = table + offset, .value = {}});
      auto& text = texts_.back();
      text.value = kept_text(text.file_offset);
      if (text.value) continue;
      const auto limit = std::min<std::uint64_t>(bytes - offset, kMaxElfTextBytes);
      if (!want(Table::kText, {text.file_offset, limit}, texts_.size() - 1))
        damaged(
            "a name of the dynamic section lies behind the file's first 4 MiB, in front of that section, and was not kept");
    }
  }

  // A string of what was kept. Absent if it was not kept, or not to its end.
  std::optional<std::string> kept_text(std::uint64_t file_offset) const {
    std::optional<std::string> text;
    if (file_offset < head_.size()) text = text_at(head_, file_offset);
    if (!text && file_offset >= window_offset_ && file_offset - window_offset_ < window_.size())
      text = text_at(window_, file_offset - window_offset_);
    auto found = found_texts_.upper_bound(file_offset);
    if (text || found == found_texts_.begin()) return text;
    --found;
    const auto inside = file_offset - found->first;
    if (inside < found->second.size()) text = found->second.substr(inside);
    return text;
  }

  static std::optional<std::string> text_at(ByteView bytes, std::uint64_t at) {
    const auto from = as_text(bytes).substr(at);
    const auto end = from.find('\0');
    if (end == std::string_view::npos) return std::nullopt;
    return std::string(from.substr(0, end));
  }

  void collect_texts() {
    std::uint64_t bytes = 0;
    for (const auto& text : texts_) bytes += text.value ? text.value->size() : 0;
    if (bytes + facts_.interpreter.size() > kMaxElfTextBytes) {
      damaged("more text in its dynamic section than 64 KiB");
      return;
    }
    for (auto& text : texts_) {
      if (!text.value) {
        damaged("a name in the dynamic section has no end");
        continue;
      }
      if (text.tag == kNeeded) facts_.needed.push_back(std::move(*text.value));
      // Of several the loader takes the last.
      else if (text.tag == kSoname)
        facts_.soname = std::move(*text.value);
      else if (text.tag == kRpath)
        facts_.rpath = std::move(*text.value);
      else
        facts_.runpath = std::move(*text.value);
    }
  }

  // --- what may lie anywhere
  // ----------------------------------------------------------------------------------------------------------------

  // Fatbin containers, and where the names of sections with device code stand: whether one is a section's name is known
  // only when the section headers have come by.
  void search_device_code(ByteView content) {
    if (facts_.device_code) return;
    if (!recent_.empty()) {
      auto joint = to_bytes(ByteView(recent_).last(std::min(recent_.size(), kLongestNeedle - 1)));
      const auto begin = at_ - joint.size();
      append(joint, content.first(std::min(content.size(), kLongestNeedle - 1)));
      search_device_code(joint, begin);
    }
    search_device_code(content, at_);
  }

  void search_device_code(ByteView content, std::uint64_t offset) {
    // Of the names the "v_" and "vF".
    const auto may_match = [](Vector a, Vector b) {
      return Vector(((a == 0x50) & (b == 0xED)) | ((a == 'v') & ((b == '_') | (b == 'F'))));
    };
    for_likely_places(content, may_match, [&](std::size_t at) {
      if (content[at] == std::byte(0x50)) {
        if (as_text(content.subspan(at)).starts_with(kFatbinHeader)) facts_.device_code = true;
        return facts_.device_code;
      }
      if (content[at] != std::byte('v')) return false;
      for (const auto name : kDeviceSections) {
        const auto begin = at - std::min(at, name.find('v'));
        if (as_text(content.subspan(begin)).starts_with(name) && device_names_.size() < kMaxFoundNames)
          device_names_.insert(offset + begin);
      }
      return false;
    });
  }

  void look_up_sections() {
    if (facts_.device_code || sections_.empty() || device_names_.empty()) return;
    const auto header = [&](std::uint64_t number) {
      return ByteView(sections_).subspan(number * section_bytes(), section_bytes());
    };
    if (names_section_ == 0) return;
    if (names_section_ >= section_count_) return damaged("the names of sections are in no section");
    const auto names = header(names_section_);
    const auto names_offset = word(names, 24, 16);
    const auto names_bytes = word(names, 32, 20);
    for (std::uint64_t i = 0; i < section_count_; ++i) {
      const auto name = number<std::uint32_t>(header(i), 0);
      if (name < names_bytes && device_names_.contains(names_offset + name)) facts_.device_code = true;
    }
  }

  // Strings that look like a library's name or a path, kept until the dynamic section says which of them it means.
  void search_texts(ByteView content) {
    if (found_too_much_ ||
        std::ranges::none_of(search_ranges_, [&](const ByteRange& range) { return range.contains(at_); }))
      return;
    auto joint = to_bytes(ByteView(recent_).last(std::min(recent_.size(), kJointBytes)));
    const auto begin = at_ - joint.size();
    append(joint, content.first(std::min(content.size(), kJointBytes)));
    search_texts(joint, begin);
    search_texts(content, at_);
  }

  void search_texts(ByteView content, std::uint64_t offset) {
    const auto may_match = [](Vector a, Vector b) {
      return Vector(((a == '.') & (b == 's')) | ((a == '$') & (b == 'O')) | ((a == '/') & (b == 'l')));
    };
    std::size_t seen = 0;  // a run of printable bytes is looked at once
    for_likely_places(content, may_match, [&](std::size_t at) {
      if (at < seen) return false;
      const auto here = as_text(content.subspan(at, std::min<std::size_t>(3, content.size() - at)));
      if (std::ranges::find(kTextNeedles, here) == kTextNeedles.end()) return false;
      auto begin = at;
      while (begin > 0 && is_printable(content[begin - 1]) && at - begin < kMaxFoundText) --begin;
      auto end = at;
      while (end < content.size() && is_printable(content[end])) ++end;
      seen = end;
      if (begin == 0 || content[begin - 1] != std::byte(0) || end == content.size() || content[end] != std::byte(0) ||
          end - begin > kMaxFoundText)
        return false;
      const auto [found, is_new] =
          found_texts_.try_emplace(offset + begin, as_text(content.subspan(begin, end - begin)));
      if (is_new) found_text_bytes_ += end - begin + 64;
      found_too_much_ = found_text_bytes_ > kMaxFoundTextBytes;
      if (found_too_much_) found_texts_.clear();
      return found_too_much_;
    });
  }

  std::uint64_t size_ = 0;
  std::uint64_t at_ = 0;  // bytes fed
  bool ended_ = true;     // no ELF file
  bool extra_ = false;
  bool is_elf_ = false;
  bool big_endian_ = false;
  ElfFacts facts_;

  bool keeps_head_ = true;
  Bytes head_;
  Bytes recent_;
  std::vector<Awaited> awaited_;

  std::vector<Segment> loads_;
  Bytes window_;
  std::uint64_t window_offset_ = 0;
  std::vector<ByteRange> search_ranges_;
  bool found_too_much_ = false;
  std::map<std::uint64_t, std::string> found_texts_;  // by where they begin
  std::size_t found_text_bytes_ = 0;
  std::vector<Text> texts_;
  std::uint64_t captured_text_bytes_ = 0;

  std::uint64_t sections_offset_ = 0;
  std::uint64_t section_count_ = 0;
  std::uint64_t names_section_ = 0;
  Bytes sections_;
  std::set<std::uint64_t> device_names_;
};

ElfFactsReader::ElfFactsReader() : impl_(std::make_unique<Impl>()) {}
ElfFactsReader::~ElfFactsReader() = default;
void ElfFactsReader::begin(std::uint64_t size) { impl_->begin(size); }
void ElfFactsReader::feed(ByteView content) { impl_->feed(content); }
void ElfFactsReader::feed_zeros(std::uint64_t count) { impl_->feed_zeros(count); }
std::shared_ptr<const ElfFacts> ElfFactsReader::finish() { return impl_->finish(); }

}  // namespace varve::index
