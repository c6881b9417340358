#include "core/index/elf/elf_facts.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "core/base/byte_range.h"
#include "core/base/zeros.h"
#include "core/index/elf/internal/device_code_search.h"
#include "core/index/elf/internal/elf_tables.h"
#include "core/index/elf/internal/text_search.h"

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

constexpr std::string_view kElfMagic = ELFMAG;

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
    *this = Impl(max_head_bytes_, std::move(head_));
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
      length = text_search_.part_at(at_, length);
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
      const auto step = std::min<std::uint64_t>(count, kZeros.size());
      feed(ByteView(kZeros).first(step));
      count -= step;
      if (count <= kZeros.size() || (keeps_head_ && head_.size() < max_head_bytes_)) continue;
      auto passed = count - kZeros.size();
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
    facts_.device_code = device_code_.found_container() || names_device_section();
    collect_texts();
    return std::make_shared<const ElfFacts>(std::move(facts_));
  }

  explicit Impl(std::size_t max_head_bytes, Bytes head = {}) : max_head_bytes_(max_head_bytes), head_(std::move(head)) {
    head_.clear();
  }

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

  // The first thing that is wrong is what counts.
  void damaged(std::string_view reason) {
    if (facts_.broken.empty()) facts_.broken = reason;
  }

  // --- what is kept

  void take(ByteView content) {
    if (is_elf_) {
      device_code_.look_at(recent_, content, at_);
      text_search_.look_at(recent_, content, at_);
      remember(content);
    }
    if (keeps_head_ && head_.size() < max_head_bytes_)
      append(head_, content.first(std::min(content.size(), max_head_bytes_ - head_.size())));
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
    const auto kept = text_search_.looks_somewhere() ? TextSearch::kJointBytes : DeviceCodeSearch::kJointBytes + 1;
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
    format_ = {.is_64 = facts_.is_64, .big_endian = order == 2};
    if (format_.header_bytes() > size_) return stop("the file ends inside its header");
    want(Table::kHeader, {0, format_.header_bytes()});
  }

  // No table can be found; device code may still come by.
  void stop(std::string_view reason) {
    damaged(reason);
    keeps_head_ = false;
  }

  void read_header(ByteView bytes) {
    const auto header = header_of(format_, bytes);
    facts_.type = header.type;
    facts_.machine = header.machine;
    want_sections(header);
    if (header.segments_at == 0 || header.segment_count == 0) {
      keeps_head_ = false;
      return;
    }
    if (header.segment_bytes != format_.segment_bytes()) return stop("program headers of an unknown size");
    if (header.segment_count == PN_XNUM || header.segment_count > kMaxSegments)
      return stop("more than 4096 program headers");
    const ByteRange range{header.segments_at, header.segment_count * format_.segment_bytes()};
    if (!range.fits_in(size_)) return stop("program headers outside the file");
    if (!want(Table::kSegments, range)) return stop("program headers inside the header");
  }

  void want_sections(const ElfHeader& header) {
    if (header.sections_at == 0) return;
    if (header.section_bytes != format_.section_bytes()) return damaged("section headers of an unknown size");
    sections_offset_ = header.sections_at;
    section_count_ = header.section_count;
    names_section_ = header.names_section;
    if (section_count_ == 0 || names_section_ == SHN_XINDEX) {
      // The first section header says how many they are.
      const ByteRange first{sections_offset_, format_.section_bytes()};
      if (!first.fits_in(size_) || !want(Table::kFirstSection, first)) damaged("section headers outside the file");
      return;
    }
    want_sections_from(0);
  }

  void read_first_section(ByteView section) {
    if (section_count_ == 0) section_count_ = format_.word(section, 32, 20);
    if (names_section_ == SHN_XINDEX) names_section_ = format_.number<std::uint32_t>(section, format_.is_64 ? 40 : 24);
    if (section_count_ == 0) return;
    sections_ = to_bytes(section);
    want_sections_from(1);
  }

  void want_sections_from(std::uint64_t first) {
    if (section_count_ > kMaxSections) return damaged("more than 65536 sections");
    if (!ByteRange{sections_offset_, section_count_ * format_.section_bytes()}.fits_in(size_) ||
        !want(Table::kSections,
              {sections_offset_ + first * format_.section_bytes(), (section_count_ - first) * format_.section_bytes()}))
      damaged("section headers outside the file");
  }

  void read_segments(ByteView table) {
    std::optional<ByteRange> interpreter;
    std::optional<ByteRange> dynamic;
    for (const auto& segment : segments_of(format_, table)) {
      if (segment.type == PT_LOAD) loads_.push_back(segment);
      if (segment.type == PT_INTERP && !interpreter) interpreter = segment.in_file;
      if (segment.type == PT_DYNAMIC && !dynamic) dynamic = segment.in_file;
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
    const auto begin = std::max<std::uint64_t>(at_, max_head_bytes_);
    if (dynamic_offset <= begin) return;
    const auto window = std::max(begin, dynamic_offset - std::min(dynamic_offset, kMaxDynamicWindowBytes));
    want(Table::kWindow, {window, dynamic_offset - window});

    std::vector<ByteRange> code;
    for (const auto& load : loads_) {
      if (&load != &loads_.front() && (load.flags & PF_X) != 0 && load.in_file.fits_in(size_))
        code.push_back(load.in_file);
    }
    std::ranges::sort(code, {}, &ByteRange::offset);
    std::vector<ByteRange> ranges;
    const auto end = std::min({window + TextSearch::kMaxTextBytes, dynamic_offset, kMaxSearchBytes});
    auto at = begin;
    for (const auto& range : code) {
      if (range.offset >= end) break;
      if (range.offset > at) ranges.push_back({at, range.offset - at});
      at = std::max(at, range.end());
    }
    if (at < end) ranges.push_back({at, end - at});
    text_search_.look_in(std::move(ranges));
  }

  void read_interpreter(ByteView name) {
    const auto text = text_at(name, 0);
    if (!text) damaged("the program interpreter's name has no end");
    facts_.interpreter = text.value_or("");
  }

  void read_dynamic(ByteView table) {
    text_search_.look_in({});
    const auto dynamic = dynamic_section_of(format_, table);
    if (dynamic.too_many_needed) damaged("more than 4096 needed libraries");
    if (!dynamic.texts.empty()) {
      const auto strings = dynamic.value(DT_STRTAB), bytes = dynamic.value(DT_STRSZ);
      if (strings && bytes)
        want_texts(dynamic.texts, *strings, *bytes);
      else
        damaged("a dynamic section without string table");
    }
    keeps_head_ = false;
  }

  void want_texts(const std::vector<DynamicText>& wanted, std::uint64_t address, std::uint64_t bytes) {
    const auto segment = std::ranges::find_if(loads_, [&](const ElfSegment& load) {
      return ByteRange{load.address, load.in_file.length}.contains(address);
    });
    if (segment == loads_.end()) return damaged("dynamic string table outside all segments");
    const auto in_segment = address - segment->address;
    bytes = std::min(bytes, segment->in_file.length - in_segment);
    if (!ByteRange{segment->in_file.offset, in_segment + bytes}.fits_in(size_))
      return damaged("dynamic string table outside the file");
    const auto table = segment->in_file.offset + in_segment;
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
            "a name of the dynamic section lies behind the file's first 4 MiB, in front of that section, and was not "
            "kept");
    }
  }

  // A string of what was kept. Absent if it was not kept, or not to its end.
  std::optional<std::string> kept_text(std::uint64_t file_offset) const {
    std::optional<std::string> text;
    if (file_offset < head_.size()) text = text_at(head_, file_offset);
    if (!text && file_offset >= window_offset_ && file_offset - window_offset_ < window_.size())
      text = text_at(window_, file_offset - window_offset_);
    return text ? text : text_search_.find(file_offset);
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
      if (text.tag == DT_NEEDED)
        facts_.needed.push_back(std::move(*text.value));
      else if (text.tag == DT_SONAME)
        facts_.soname = std::move(*text.value);
      else if (text.tag == DT_RPATH)
        facts_.rpath = std::move(*text.value);
      else
        facts_.runpath = std::move(*text.value);
    }
  }

  bool names_device_section() {
    // The first may have come alone, and say that there are more than the file has.
    if (sections_.empty() || sections_.size() / format_.section_bytes() != section_count_) return false;
    if (!device_code_.has_names()) return false;
    const auto header = [&](std::uint64_t number) {
      return ByteView(sections_).subspan(number * format_.section_bytes(), format_.section_bytes());
    };
    if (names_section_ == 0) return false;
    if (names_section_ >= section_count_) {
      damaged("the names of sections are in no section");
      return false;
    }
    const auto names = header(names_section_);
    const auto names_offset = format_.word(names, 24, 16);
    const auto names_bytes = format_.word(names, 32, 20);
    for (std::uint64_t i = 0; i < section_count_; ++i) {
      const auto name = format_.number<std::uint32_t>(header(i), 0);
      if (name < names_bytes && device_code_.has_name_at(names_offset + name)) return true;
    }
    return false;
  }

  std::uint64_t size_ = 0;
  std::uint64_t at_ = 0;  // bytes fed
  bool ended_ = true;     // no ELF file
  bool extra_ = false;
  bool is_elf_ = false;
  ElfFormat format_;
  ElfFacts facts_;

  std::size_t max_head_bytes_;
  bool keeps_head_ = true;
  Bytes head_;
  Bytes recent_;
  std::vector<Awaited> awaited_;

  std::vector<ElfSegment> loads_;
  Bytes window_;
  std::uint64_t window_offset_ = 0;
  TextSearch text_search_;
  std::vector<Text> texts_;
  std::uint64_t captured_text_bytes_ = 0;

  std::uint64_t sections_offset_ = 0;
  std::uint64_t section_count_ = 0;
  std::uint64_t names_section_ = 0;
  Bytes sections_;
  DeviceCodeSearch device_code_;
};

ElfFactsReader::ElfFactsReader(std::size_t max_head_bytes) : impl_(std::make_unique<Impl>(max_head_bytes)) {}
ElfFactsReader::~ElfFactsReader() = default;
void ElfFactsReader::begin(std::uint64_t size) { impl_->begin(size); }
void ElfFactsReader::feed(ByteView content) { impl_->feed(content); }
void ElfFactsReader::feed_zeros(std::uint64_t count) { impl_->feed_zeros(count); }
std::shared_ptr<const ElfFacts> ElfFactsReader::finish() { return impl_->finish(); }

}  // namespace varve::index
