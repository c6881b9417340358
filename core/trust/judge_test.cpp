#include "core/trust/judge.h"

#include <gtest/gtest.h>

#include "core/trust/tool_version.h"

namespace varve::trust {
namespace {

const std::string kHere = "registry.example/team/app";
const std::string kElsewhere = "registry.example/other/app";

class SignedBy final : public SignatureChecker {
 public:
  explicit SignedBy(std::vector<std::string> signers) : signers_(std::move(signers)) {}
  bool has_keys(const Request&) const override { return true; }
  SignatureFindings check(const Request&, const Candidate&) const override {
    return {.signers = signers_, .keys_tried = {"ab12cd34"}, .seen = 2, .trouble = {}};
  }

 private:
  std::vector<std::string> signers_;
};

class JudgeTest : public testing::Test {
 protected:
  JudgeTest() { document_.descriptor.digest = digest_of("index"); }

  Judgement judge(const Origin& origin, const std::string& selector, bool offered_now = false,
                  const std::optional<Digest>& first_used = std::nullopt) const {
    const Judge judge(settings_, signatures_);
    return judge.judge(request(selector),
                       {.manifest = document_, .tool = "varve 0.2.0", .origin = origin, .offered_now = offered_now},
                       first_used);
  }
  static Request request(const std::string& selector) {
    return {.repository = kHere, .selector = selector, .image = digest_of("image")};
  }

  const std::string digest_ = digest_of("image").to_string();
  const Origin from_here_{.built_here = false, .proved = false, .refuted = {}, .repositories = {kHere}};
  const Origin from_elsewhere_{.built_here = false, .proved = false, .refuted = {}, .repositories = {kElsewhere}};
  const Origin built_{.built_here = true, .proved = false, .refuted = {}, .repositories = {}};
  const Origin proved_{.built_here = false, .proved = true, .refuted = {}, .repositories = {kElsewhere}};
  oci::Document document_;
  TrustSettings settings_;
  std::shared_ptr<const SignatureChecker> signatures_ = make_signature_checker({});
};

TEST_F(JudgeTest, BelievesByDigestOnlyWhatIsVouchedFor) {
  EXPECT_FALSE(judge(from_here_, digest_).trusted);
  EXPECT_FALSE(judge(from_here_, digest_, true).trusted);
  EXPECT_TRUE(judge(built_, digest_).vouched);
  EXPECT_TRUE(judge(proved_, digest_).vouched);
  signatures_ = std::make_shared<SignedBy>(std::vector<std::string>{"ab12cd34"});
  const auto judgement = judge(from_here_, digest_);
  EXPECT_TRUE(judgement.vouched);
  EXPECT_EQ(judgement.signers, std::vector<std::string>{"ab12cd34"});
  EXPECT_EQ(judgement.rule, "signed by ab12cd34");
}

TEST_F(JudgeTest, BelievesByTagTheRepositoryThatWasAskedAndNoOther) {
  EXPECT_TRUE(judge(from_here_, "v1").trusted);
  EXPECT_FALSE(judge(from_here_, "v1").vouched);
  EXPECT_TRUE(judge(from_here_, "").trusted);
  EXPECT_TRUE(judge({}, "v1", true).trusted);
  EXPECT_FALSE(judge({}, "v1").trusted) << "where it came from was never recorded";
  const auto judgement = judge(from_elsewhere_, "v1");
  EXPECT_FALSE(judgement.trusted);
  EXPECT_NE(judgement.refusal.find(kElsewhere), std::string::npos) << judgement.refusal;
}

TEST_F(JudgeTest, KeepsToTheSettings) {
  settings_.index = IndexRule::kSigned;
  EXPECT_FALSE(judge(from_here_, "v1", true).trusted);
  EXPECT_TRUE(judge(built_, "v1").trusted);
  settings_.index = IndexRule::kAny;
  EXPECT_TRUE(judge(from_here_, digest_).trusted);
  EXPECT_FALSE(judge(from_elsewhere_, digest_).trusted) << "another repository's word";
  settings_.index = IndexRule::kPinned;
  EXPECT_TRUE(judge(from_here_, digest_).trusted);
  EXPECT_TRUE(judge(from_here_, digest_, false, document_.descriptor.digest).trusted);
  EXPECT_FALSE(judge(from_here_, digest_, false, digest_of("first")).trusted);
  EXPECT_FALSE(judge(from_here_, "v1", false, digest_of("first")).trusted);
}

// Who may push to one of the repositories of index-from must get no more power over images than this.
TEST_F(JudgeTest, BelievesARepositoryOfIndexFromOnlyWhereASettingBelievesTheUnsigned) {
  const auto judge_offer = [&](const std::string& selector, const std::optional<Digest>& first = std::nullopt) {
    return Judge(settings_, signatures_)
        .judge(request(selector),
               {.manifest = document_, .tool = "varve 0.2.0", .origin = from_elsewhere_, .index_from = kElsewhere},
               first);
  };
  EXPECT_FALSE(judge_offer("v1").trusted) << "the tag's owner is another";
  EXPECT_NE(judge_offer("v1").refusal.find("index-from"), std::string::npos) << judge_offer("v1").refusal;
  EXPECT_FALSE(judge_offer(digest_).trusted);
  settings_.index = IndexRule::kSigned;
  EXPECT_FALSE(judge_offer("v1").trusted);
  settings_.index = IndexRule::kPinned;
  EXPECT_TRUE(judge_offer(digest_).trusted) << "the first that was seen";
  EXPECT_FALSE(judge_offer(digest_).vouched);
  EXPECT_TRUE(judge_offer(digest_, document_.descriptor.digest).trusted);
  EXPECT_FALSE(judge_offer(digest_, digest_of("seen first, wherever")).trusted);
  settings_.index = IndexRule::kAny;
  EXPECT_TRUE(judge_offer(digest_).trusted);
  settings_.scopes = {{.prefix = kElsewhere, .keys = {}, .index = IndexRule::kSigned, .place = "a:7"}};
  EXPECT_FALSE(judge_offer(digest_).trusted) << "the setting of the place itself is stronger";
  settings_.scopes.clear();
  settings_.index = IndexRule::kSigned;
  signatures_ = std::make_shared<SignedBy>(std::vector<std::string>{"ab12cd34"});
  EXPECT_TRUE(judge_offer(digest_).vouched);
}

TEST_F(JudgeTest, TakesTheMostSpecificScope) {
  settings_.index = IndexRule::kSigned;
  settings_.scopes = {{.prefix = "registry.example/team", .keys = {}, .index = IndexRule::kAny, .place = "a:1"},
                      {.prefix = "registry.example/team/ap", .keys = {}, .index = IndexRule::kSigned, .place = "a:5"}};
  EXPECT_TRUE(judge(from_here_, digest_).trusted) << "a prefix ends where a part of the name ends";
  settings_.scopes.push_back({.prefix = kHere, .keys = {}, .index = IndexRule::kSigned, .place = "a:9"});
  EXPECT_FALSE(judge(from_here_, digest_).trusted);
  EXPECT_NE(Judge(settings_, signatures_).refusal(request(digest_), {}).find("a:9"), std::string::npos);
}

TEST_F(JudgeTest, RefusesWhatIsDeniedRefutedOrTooOldWhoeverVouches) {
  auto refuted = built_;
  refuted.refuted = "layer sha256:x is another one";
  EXPECT_FALSE(judge(refuted, "v1").trusted);
  settings_.min_tool = "varve 0.10.0";
  EXPECT_FALSE(judge(built_, "v1").trusted);
  settings_.min_tool = "varve 0.2.0";
  EXPECT_TRUE(judge(built_, "v1").trusted);
  settings_.deny.insert(document_.descriptor.digest);
  EXPECT_FALSE(judge(built_, "v1").trusted);
}

TEST_F(JudgeTest, SaysWhatWasTriedAndTheWaysOut) {
  signatures_ = std::make_shared<SignedBy>(std::vector<std::string>{});
  const auto judgement = judge(from_here_, digest_);
  EXPECT_NE(judgement.refusal.find("2 signatures, none by a key that counts (tried ab12cd34)"), std::string::npos)
      << judgement.refusal;
  const auto text = Judge(settings_, signatures_).refusal(request(digest_), {judgement.refusal});
  for (const char* part : {"varve keygen", "--index-here", "varve index", "pinned", "ab12cd34"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(ToolVersion, IsComparedByNumber) {
  EXPECT_GT(tool_version("varve 0.10.0"), tool_version("varve 0.9.1"));
  EXPECT_TRUE(is_later_than_this("varve 99.0"));
  EXPECT_FALSE(is_later_than_this(this_tool()));
  EXPECT_FALSE(is_later_than_this("somebody else 99.0"));
}

}  // namespace
}  // namespace varve::trust
