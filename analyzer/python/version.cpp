#include "analyzer/python/version.h"

#include <array>
#include <initializer_list>

#include "analyzer/python/internal/text.h"

namespace varve::python {

namespace {

// Reads a version from left to right. Every optional separator is taken when it is there: no later part needs it back.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : rest_(text) {}

  bool at_end() const { return rest_.empty(); }
  bool take(char c) {
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void take_separator() { take('-') || take('_') || take('.'); }
  // "" if there is no digit.
  std::string take_number() {
    std::size_t size = 0;
    while (size < rest_.size() && is_digit(rest_[size])) ++size;
    auto digits = rest_.substr(0, size);
    rest_.remove_prefix(size);
    while (digits.size() > 1 && digits.front() == '0') digits.remove_prefix(1);
    return std::string(digits);
  }
  // One of the words with an optional separator before it: its position in the list, or -1. Longer words come first in
  // the list.
  int take_word(std::initializer_list<std::string_view> words) {
    auto after = *this;
    after.take_separator();
    int found = 0;
    for (const auto word : words) {
      if (after.rest_.starts_with(word)) {
        after.rest_.remove_prefix(word.size());
        *this = after;
        return found;
      }
      ++found;
    }
    return -1;
  }
  // The number after a word; "0" where it is left out.
  std::string take_word_number() {
    take_separator();
    auto number = take_number();
    return number.empty() ? "0" : number;
  }
  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

// Numbers of any length compare by length, then by digits.
void append_number(std::string& key, std::string_view number) {
  static_assert(kMaxVersionBytes < 65536);
  key += char(number.size() >> 8);
  key += char(number.size() & 0xFF);
  key += number;
}

bool read_release(Scanner& scanner, std::string& epoch, std::vector<std::string>& release) {
  auto first = scanner.take_number();
  if (first.empty()) return false;
  if (scanner.take('!')) {
    epoch = std::move(first);
    first = scanner.take_number();
    if (first.empty()) return false;
  }
  release.push_back(std::move(first));
  for (;;) {
    auto ahead = scanner;
    if (!ahead.take('.')) return true;
    auto number = ahead.take_number();
    if (number.empty()) return true;
    release.push_back(std::move(number));
    scanner = ahead;
  }
}

bool read_post(Scanner& scanner, std::optional<std::string>& post) {
  auto implicit = scanner;
  if (implicit.take('-')) {
    if (auto number = implicit.take_number(); !number.empty()) {
      post = std::move(number);
      scanner = implicit;
      return true;
    }
  }
  if (scanner.take_word({"post", "rev", "r"}) < 0) return false;
  post = scanner.take_word_number();
  return true;
}

bool read_local(std::string_view text, std::vector<std::string>& local) {
  for (;;) {
    const auto end = text.find_first_of("-_.");
    const auto segment = text.substr(0, end);
    if (segment.empty() || !std::ranges::all_of(segment, is_alnum)) return false;
    local.push_back(all_digits(segment) ? Scanner(segment).take_number() : std::string(segment));
    if (end == std::string_view::npos) return true;
    text.remove_prefix(end + 1);
  }
}

std::string local_key(const std::vector<std::string>& local) {
  std::string key;
  for (const auto& segment : local) {
    if (all_digits(segment)) {
      key += '\2';  // numbers come after words
      append_number(key, segment);
    } else {
      key += '\1' + segment + '\0';
    }
  }
  return key;
}

}  // namespace

std::optional<Version> Version::parse(std::string_view text) {
  if (text.size() > kMaxVersionBytes) return std::nullopt;
  text = trim(text);
  Version out;
  out.text_ = text;
  const auto low = to_lower(text);
  Scanner scanner(low);
  scanner.take('v');
  if (!read_release(scanner, out.epoch_, out.release_)) return std::nullopt;
  static constexpr std::array<std::string_view, 8> kPreLetters{"a", "a", "b", "b", "rc", "rc", "rc", "rc"};
  if (const int word = scanner.take_word({"alpha", "a", "beta", "b", "preview", "pre", "c", "rc"}); word >= 0) {
    out.pre_letter_ = kPreLetters[std::size_t(word)];
    out.pre_number_ = scanner.take_word_number();
  }
  read_post(scanner, out.post_);
  if (scanner.take_word({"dev"}) >= 0) out.dev_ = scanner.take_word_number();
  if (scanner.take('+')) {
    if (!read_local(scanner.rest(), out.local_)) return std::nullopt;
  } else if (!scanner.at_end()) {
    return std::nullopt;
  }
  out.make_keys();
  return out;
}

// PEP 440's order as bytes: epoch, release without trailing zeros, then a mark and a number for pre, post and dev. A
// release of development only (1.0.dev1) comes before every pre-release, and what has no pre-release after all of them.
void Version::make_keys() {
  append_number(public_key_, epoch_);
  auto used = release_.size();
  while (used > 0 && release_[used - 1] == "0") --used;
  for (std::size_t i = 0; i < used; ++i) {
    public_key_ += '\1';
    append_number(public_key_, release_[i]);
  }
  public_key_ += '\0';
  base_size_ = public_key_.size();
  if (pre_letter_.empty()) {
    public_key_ += dev_ && !post_ ? '\0' : '\4';
  } else {
    public_key_ += pre_letter_ == "a" ? '\1' : pre_letter_ == "b" ? '\2' : '\3';
    append_number(public_key_, pre_number_);
  }
  pre_size_ = public_key_.size();
  public_key_ += post_ ? '\1' : '\0';
  if (post_) append_number(public_key_, *post_);
  post_size_ = public_key_.size();
  public_key_ += dev_ ? '\0' : '\1';
  if (dev_) append_number(public_key_, *dev_);
  local_key_ = local_key(local_);
}

std::strong_ordering Version::operator<=>(const Version& other) const {
  if (const auto order = public_key_.compare(other.public_key_); order != 0) return order <=> 0;
  return local_key_.compare(other.local_key_) <=> 0;
}

bool Version::operator==(const Version& other) const {
  return public_key_ == other.public_key_ && local_key_ == other.local_key_;
}

std::string Version::normalized() const {
  std::string out;
  if (epoch_ != "0") out = epoch_ + "!";
  for (std::size_t i = 0; i < release_.size(); ++i) out += (i == 0 ? "" : ".") + release_[i];
  if (!pre_letter_.empty()) out += pre_letter_ + pre_number_;
  if (post_) out += ".post" + *post_;
  if (dev_) out += ".dev" + *dev_;
  for (std::size_t i = 0; i < local_.size(); ++i) out += (i == 0 ? "+" : ".") + local_[i];
  return out;
}

}  // namespace varve::python
