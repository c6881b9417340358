// Users over months: their hashes change with the month, so a window over several has a range of counts.
#include <algorithm>

#include "analyzer/usage/internal/month_cover.h"
#include "analyzer/usage/internal/snapshot_reader.h"

namespace varve::usage {

void SnapshotReader::read_users() {
  const MonthCover cover(sql_);
  struct Subject {
    std::int64_t kind = -1, id = 0, image = 0;
    bool operator==(const Subject&) const = default;
  };
  Subject subject;
  UserCount users;
  const auto end_subject = [&] {
    if (subject.kind >= 0) take_users(subject.kind, subject.id, subject.image, users);
    users = {};
  };
  // An image's own users are asked for image by image; of all other subjects the sketches over all images are there.
  sql_.query(
      "SELECT kind, subject_id, CASE WHEN kind = 0 THEN image_id ELSE 0 END AS of_image, month, users "
      "FROM user_sketch WHERE month BETWEEN $1 AND $2 AND (image_id = $3 OR ($3 = 0 AND kind = 0)) "
      "ORDER BY kind, subject_id, of_image",
      {month_of(query_.window.first), month_of(query_.window.last), image_id_}, [&](const SqlRow& row) {
        const Subject now{.kind = row.number(0), .id = row.number(1), .image = row.number(2)};
        if (now != subject) {
          end_subject();
          subject = now;
        }
        const auto count = std::uint64_t(std::max<std::int64_t>(row.number(4), 0));
        users.at_most += count;
        if (cover.covers(query_.window, std::int32_t(row.number(3)))) users.at_least = std::max(users.at_least, count);
      });
  end_subject();
}

void SnapshotReader::take_users(std::int64_t kind, std::int64_t subject, std::int64_t image, const UserCount& users) {
  switch (SketchKind(kind)) {
    case SketchKind::kImage:
      if (const auto found = images_.find(image); found != images_.end())
        found->second.users = within(users, found->second.heard);
      return;
    case SketchKind::kDistribution:
      if (const auto found = uses_.find(subject); found != uses_.end())
        found->second.users = within(users, found->second.sessions + found->second.file_sessions);
      return;
    case SketchKind::kFailed:
      if (const auto found = failed_.find(subject); found != failed_.end())
        found->second.users = within(users, found->second.sessions);
      return;
    case SketchKind::kReinstall:
      if (const auto found = reinstalls_.find(subject); found != reinstalls_.end())
        found->second.users = within(users, found->second.sessions);
      return;
  }
}

}  // namespace varve::usage
