#include "analyzer/usage/internal/schema.h"

#include <array>

namespace varve::usage {
namespace {

// One script per version; the first makes an empty database. A script that was released is never changed: what comes
// after goes into a new one. {key} numbers rows by itself; number 0 is never given, so 0 can stand for "none".
constexpr std::array<std::string_view, kSchemaVersion> kScripts{R"(
CREATE TABLE image (id {key}, digest TEXT NOT NULL UNIQUE, label TEXT NOT NULL, python TEXT NOT NULL,
  has_inventory {number} NOT NULL) {table_end};
CREATE TABLE layer (image_id {number} NOT NULL, number {number} NOT NULL, digest TEXT NOT NULL,
  compressed_bytes {number} NOT NULL, stream_bytes {number} NOT NULL, created_by TEXT NOT NULL,
  PRIMARY KEY (image_id, number)) {table_end};
CREATE TABLE distribution (id {key}, name TEXT NOT NULL UNIQUE, display_name TEXT NOT NULL) {table_end};
CREATE TABLE package (image_id {number} NOT NULL, number {number} NOT NULL, distribution_id {number} NOT NULL,
  version TEXT NOT NULL, source TEXT NOT NULL, files {number} NOT NULL, bytes {number} NOT NULL,
  compressed_bytes {number} NOT NULL, gpu {number} NOT NULL, layers TEXT NOT NULL, imports TEXT NOT NULL,
  required TEXT NOT NULL, PRIMARY KEY (image_id, number)) {table_end};
CREATE INDEX package_distribution ON package (distribution_id);
CREATE TABLE image_module (image_id {number} NOT NULL, name TEXT NOT NULL, distribution_id {number} NOT NULL,
  PRIMARY KEY (image_id, name, distribution_id)) {keyed_table_end};
CREATE INDEX image_module_name ON image_module (name);
CREATE TABLE image_path (image_id {number} NOT NULL, prefix TEXT NOT NULL, distribution_id {number} NOT NULL,
  PRIMARY KEY (image_id, prefix, distribution_id)) {keyed_table_end};
CREATE TABLE image_architecture (image_id {number} NOT NULL, name TEXT NOT NULL, bytes {number} NOT NULL,
  PRIMARY KEY (image_id, name)) {table_end};

CREATE TABLE module (id {key}, name TEXT NOT NULL UNIQUE) {table_end};
CREATE TABLE gpu_model (id {key}, name TEXT NOT NULL UNIQUE) {table_end};
CREATE TABLE failed_name (id {key}, hash {blob} NOT NULL UNIQUE, name TEXT NOT NULL,
  sessions {number} NOT NULL) {table_end};
CREATE TABLE reinstall (id {key}, distribution_id {number} NOT NULL, from_version TEXT NOT NULL,
  to_version TEXT NOT NULL, why TEXT NOT NULL, UNIQUE (distribution_id, from_version, to_version, why)) {table_end};
CREATE TABLE pending_path (id {key}, path TEXT NOT NULL UNIQUE) {table_end};

CREATE TABLE spool_file (session_key {blob} NOT NULL, process_key {blob} NOT NULL, day {number} NOT NULL,
  read_bytes {number} NOT NULL, records {number} NOT NULL, head {blob} NOT NULL, tail {blob} NOT NULL,
  lifetime_seconds {number} NOT NULL, kernel {number} NOT NULL, idle_seconds {number} NOT NULL,
  idle_now {number} NOT NULL, ended {number} NOT NULL, PRIMARY KEY (session_key, process_key)) {table_end};
CREATE INDEX spool_file_day ON spool_file (day);
CREATE TABLE session (id {key}, session_key {blob} NOT NULL UNIQUE, day {number} NOT NULL, image_id {number} NOT NULL,
  image_rank TEXT NOT NULL, launched {number} NOT NULL, heard {number} NOT NULL, gpu_present {number} NOT NULL,
  gpu_used {number} NOT NULL, lifetime_seconds {number} NOT NULL, idle_seconds {number} NOT NULL) {table_end};
CREATE INDEX session_day ON session (day);
CREATE INDEX session_image ON session (image_id);
CREATE TABLE session_users (session_id {number} NOT NULL, month {number} NOT NULL, hash {blob} NOT NULL,
  PRIMARY KEY (session_id, month, hash)) {keyed_table_end};
CREATE TABLE session_module (session_id {number} NOT NULL, module_id {number} NOT NULL, by_id {number} NOT NULL,
  named_id {number} NOT NULL, flags {number} NOT NULL,
  PRIMARY KEY (session_id, module_id, by_id, named_id)) {keyed_table_end};
CREATE TABLE session_copy (session_id {number} NOT NULL, distribution_id {number} NOT NULL, version TEXT NOT NULL,
  PRIMARY KEY (session_id, distribution_id, version)) {keyed_table_end};
CREATE TABLE session_failed (session_id {number} NOT NULL, failed_id {number} NOT NULL,
  PRIMARY KEY (session_id, failed_id)) {keyed_table_end};
CREATE TABLE session_reinstall (session_id {number} NOT NULL, reinstall_id {number} NOT NULL, tool TEXT NOT NULL,
  PRIMARY KEY (session_id, reinstall_id, tool)) {keyed_table_end};
CREATE TABLE session_file (session_id {number} NOT NULL, distribution_id {number} NOT NULL, flags {number} NOT NULL,
  PRIMARY KEY (session_id, distribution_id)) {keyed_table_end};
CREATE TABLE session_path (session_id {number} NOT NULL, path_id {number} NOT NULL, flags {number} NOT NULL,
  PRIMARY KEY (session_id, path_id)) {keyed_table_end};
CREATE TABLE session_gpu_model (session_id {number} NOT NULL, model_id {number} NOT NULL,
  PRIMARY KEY (session_id, model_id)) {keyed_table_end};

CREATE TABLE daily_session (day {number} NOT NULL, image_id {number} NOT NULL, launched {number} NOT NULL,
  heard {number} NOT NULL, gpu {number} NOT NULL, gpu_used {number} NOT NULL, gpu_unused_seconds {number} NOT NULL,
  gpu_idle_seconds {number} NOT NULL, gpu_incapable {number} NOT NULL, gpu_incapable_seconds {number} NOT NULL,
  PRIMARY KEY (day, image_id)) {keyed_table_end};
CREATE TABLE daily_use (day {number} NOT NULL, image_id {number} NOT NULL, distribution_id {number} NOT NULL,
  sessions {number} NOT NULL, direct {number} NOT NULL, transitive_only {number} NOT NULL, static {number} NOT NULL,
  image_copy {number} NOT NULL, session_copy {number} NOT NULL, file_sessions {number} NOT NULL,
  exec_sessions {number} NOT NULL, PRIMARY KEY (day, image_id, distribution_id)) {keyed_table_end};
CREATE INDEX daily_use_distribution ON daily_use (distribution_id, image_id, day);
CREATE TABLE daily_module (day {number} NOT NULL, image_id {number} NOT NULL, distribution_id {number} NOT NULL,
  module_id {number} NOT NULL, sessions {number} NOT NULL,
  PRIMARY KEY (day, image_id, distribution_id, module_id)) {keyed_table_end};
CREATE TABLE daily_edge (day {number} NOT NULL, image_id {number} NOT NULL, importer_id {number} NOT NULL,
  distribution_id {number} NOT NULL, sessions {number} NOT NULL,
  PRIMARY KEY (day, image_id, importer_id, distribution_id)) {keyed_table_end};
CREATE TABLE daily_failed (day {number} NOT NULL, image_id {number} NOT NULL, failed_id {number} NOT NULL,
  sessions {number} NOT NULL, PRIMARY KEY (day, image_id, failed_id)) {keyed_table_end};
CREATE TABLE daily_reinstall (day {number} NOT NULL, image_id {number} NOT NULL, reinstall_id {number} NOT NULL,
  sessions {number} NOT NULL, PRIMARY KEY (day, image_id, reinstall_id)) {keyed_table_end};
CREATE TABLE daily_gpu_model (day {number} NOT NULL, image_id {number} NOT NULL, model_id {number} NOT NULL,
  sessions {number} NOT NULL, PRIMARY KEY (day, image_id, model_id)) {keyed_table_end};
CREATE TABLE earlier_use (image_id {number} NOT NULL, distribution_id {number} NOT NULL, first_day {number} NOT NULL,
  last_day {number} NOT NULL, PRIMARY KEY (image_id, distribution_id)) {keyed_table_end};
CREATE TABLE user_sketch (month {number} NOT NULL, image_id {number} NOT NULL, kind {number} NOT NULL,
  subject_id {number} NOT NULL, sketch {blob} NOT NULL, PRIMARY KEY (month, image_id, kind, subject_id)) {table_end};

CREATE TABLE quarantine (id {key}, file_key {blob} NOT NULL, place {number} NOT NULL, reason TEXT NOT NULL,
  day {number} NOT NULL, UNIQUE (file_key, place, reason)) {table_end};

CREATE TABLE notebook (id {key}, path TEXT NOT NULL UNIQUE, format TEXT NOT NULL, language TEXT NOT NULL,
  code_cells {number} NOT NULL, code_digest TEXT NOT NULL, day {number} NOT NULL) {table_end};
CREATE INDEX notebook_code ON notebook (code_digest);
CREATE TABLE notebook_import (notebook_id {number} NOT NULL, number {number} NOT NULL, name TEXT NOT NULL,
  module TEXT NOT NULL, kind TEXT NOT NULL, local {number} NOT NULL, cell {number} NOT NULL, line {number} NOT NULL,
  PRIMARY KEY (notebook_id, number)) {keyed_table_end};
CREATE TABLE notebook_install (notebook_id {number} NOT NULL, number {number} NOT NULL, tool TEXT NOT NULL,
  package TEXT NOT NULL, argument TEXT NOT NULL, cell {number} NOT NULL, line {number} NOT NULL,
  PRIMARY KEY (notebook_id, number)) {keyed_table_end};
CREATE TABLE notebook_hint (notebook_id {number} NOT NULL, number {number} NOT NULL, kind TEXT NOT NULL,
  text TEXT NOT NULL, cell {number} NOT NULL, line {number} NOT NULL,
  PRIMARY KEY (notebook_id, number)) {keyed_table_end};
)",
                                                                R"(
CREATE TABLE module_owner (image_id {number} NOT NULL, module_id {number} NOT NULL, distribution_id {number} NOT NULL,
  short_id {number} NOT NULL, PRIMARY KEY (image_id, module_id, distribution_id)) {keyed_table_end};
INSERT INTO setting (name, value) VALUES ('owners_missing', '1');
)",
                                                                R"(
CREATE TABLE probe (id {key}, digest TEXT NOT NULL UNIQUE, day {number} NOT NULL) {table_end};
CREATE TABLE probe_item (probe_id {number} NOT NULL, number {number} NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL,
  distribution TEXT NOT NULL, outcome TEXT NOT NULL, detail TEXT NOT NULL, PRIMARY KEY (probe_id, number)) {keyed_table_end};
CREATE TABLE probe_edge (probe_id {number} NOT NULL, item {number} NOT NULL, kind TEXT NOT NULL, distribution TEXT NOT NULL,
  module TEXT NOT NULL, PRIMARY KEY (probe_id, item, kind, distribution)) {keyed_table_end};
)",
                                                                R"(
ALTER TABLE daily_use ADD COLUMN files_only {number} NOT NULL DEFAULT 0;
INSERT INTO setting (name, value) VALUES ('files_only_missing', '1');
)",
                                                                R"(
ALTER TABLE probe_item ADD COLUMN missed TEXT NOT NULL DEFAULT '';
)",
                                                                R"(
CREATE TABLE counted_month (month {number} NOT NULL PRIMARY KEY, days_gone {number} NOT NULL) {table_end};
CREATE TABLE monthly_use (month {number} NOT NULL, image_id {number} NOT NULL, distribution_id {number} NOT NULL,
  sessions {number} NOT NULL, direct {number} NOT NULL, transitive_only {number} NOT NULL, static {number} NOT NULL,
  image_copy {number} NOT NULL, session_copy {number} NOT NULL, file_sessions {number} NOT NULL,
  exec_sessions {number} NOT NULL, files_only {number} NOT NULL, first_day {number} NOT NULL,
  last_day {number} NOT NULL, PRIMARY KEY (month, image_id, distribution_id)) {keyed_table_end};
CREATE TABLE monthly_module (month {number} NOT NULL, image_id {number} NOT NULL, distribution_id {number} NOT NULL,
  module_id {number} NOT NULL, sessions {number} NOT NULL,
  PRIMARY KEY (month, image_id, distribution_id, module_id)) {keyed_table_end};
CREATE TABLE monthly_edge (month {number} NOT NULL, image_id {number} NOT NULL, importer_id {number} NOT NULL,
  distribution_id {number} NOT NULL, sessions {number} NOT NULL,
  PRIMARY KEY (month, image_id, importer_id, distribution_id)) {keyed_table_end};
ALTER TABLE user_sketch ADD COLUMN users {number} NOT NULL DEFAULT 0;
INSERT INTO setting (name, value) VALUES ('users_missing', '1');
ALTER TABLE spool_file ADD COLUMN node TEXT NOT NULL DEFAULT '';
{server}-- An older program that still runs must not go on beside this one: it knows nothing of the sums of months.
{server}ALTER TABLE spool_file ALTER COLUMN node DROP DEFAULT;

{server}DO $make$
{server}DECLARE
{server}  this_month BIGINT := (EXTRACT(YEAR FROM CURRENT_DATE)::BIGINT - 1970) * 12
{server}    + EXTRACT(MONTH FROM CURRENT_DATE)::BIGINT - 1;
{server}  newest BIGINT := (SELECT COALESCE(MAX(day), 0) FROM daily_session);
{server}  first_month BIGINT;
{server}  part TEXT;
{server}BEGIN
{server}  SELECT GREATEST(this_month, (EXTRACT(YEAR FROM day)::BIGINT - 1970) * 12 + EXTRACT(MONTH FROM day)::BIGINT)
{server}    INTO first_month FROM (SELECT DATE '1970-01-01' + newest::INT AS day) AS at;
{server}  FOREACH part IN ARRAY ARRAY['daily_use', 'daily_module', 'daily_edge'] LOOP
{server}    EXECUTE format('ALTER TABLE %I RENAME TO %I', part, part || '_before');
{server}    EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING ALL) PARTITION BY RANGE (day)', part, part || '_before');
{server}    EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (MINVALUE) TO (%s)', part,
{server}      part || '_before',
{server}      (DATE '1970-01-01' + make_interval(months => first_month::INT))::DATE - DATE '1970-01-01');
{server}  END LOOP;
{server}  FOREACH part IN ARRAY ARRAY['session_module', 'session_file'] LOOP
{server}    EXECUTE format('ALTER TABLE %I RENAME TO %I', part, part || '_before');
{server}    EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING ALL) PARTITION BY RANGE (session_id)', part,
{server}      part || '_before');
{server}    EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (MINVALUE) TO (%s)', part,
{server}      part || '_before', first_month * 4294967296);
{server}  END LOOP;
{server}  INSERT INTO setting (name, value) VALUES ('partitioned_through', first_month - 1);
{server}END $make$;

{server}CREATE TABLE node (name TEXT NOT NULL PRIMARY KEY);
{server}CREATE TABLE node_day (name TEXT NOT NULL PRIMARY KEY, day BIGINT NOT NULL, bytes BIGINT NOT NULL);
{server}CREATE TABLE intake (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, node TEXT NOT NULL,
{server}  session_key BYTEA NOT NULL CHECK (octet_length(session_key) = 16),
{server}  process_key BYTEA NOT NULL CHECK (octet_length(process_key) = 8),
{server}  start BYTEA NOT NULL CHECK (octet_length(start) BETWEEN 2 AND 4096),
{server}  first_byte BIGINT NOT NULL CHECK (first_byte BETWEEN 0 AND 33554432),
{server}  content BYTEA NOT NULL CHECK (octet_length(content) BETWEEN 1 AND 1048576),
{server}  before BYTEA NOT NULL CHECK (octet_length(before) = 64),
{server}  after BYTEA NOT NULL CHECK (octet_length(after) = 64),
{server}  UNIQUE (node, session_key, process_key, first_byte));
{server}ALTER TABLE intake ENABLE ROW LEVEL SECURITY;
{server}CREATE POLICY own_name ON intake FOR INSERT WITH CHECK (node = SESSION_USER);
{server}CREATE VIEW own_spool WITH (security_barrier) AS
{server}  SELECT session_key, process_key, read_bytes AS end_byte FROM spool_file WHERE node = SESSION_USER
{server}  UNION ALL SELECT session_key, process_key, first_byte + octet_length(content) FROM intake
{server}    WHERE node = SESSION_USER;
{server}CREATE FUNCTION intake_bound() RETURNS TRIGGER LANGUAGE plpgsql SECURITY DEFINER AS $bound$
{server}DECLARE
{server}  waiting RECORD;
{server}BEGIN
{server}  NEW.node := SESSION_USER;
{server}  -- One transaction of a node at a time, so that none can pass the bound beside another. Its row, unlike an
{server}  -- advisory lock, is nothing that other nodes could hold.
{server}  INSERT INTO node (name) VALUES (SESSION_USER) ON CONFLICT DO NOTHING;
{server}  PERFORM 1 FROM node WHERE name = SESSION_USER FOR UPDATE;
{server}  IF EXISTS (SELECT 1 FROM intake WHERE node = NEW.node AND session_key = NEW.session_key
{server}      AND process_key = NEW.process_key AND first_byte = NEW.first_byte) THEN
{server}    RETURN NULL;
{server}  END IF;
{server}  SELECT COUNT(*) AS parts, COALESCE(SUM(octet_length(content)), 0) AS bytes INTO waiting FROM intake
{server}    WHERE node = NEW.node;
{server}  IF waiting.parts >= COALESCE((SELECT value::BIGINT FROM setting WHERE name = 'intake_parts'), 10000)
{server}      OR waiting.bytes + octet_length(NEW.content)
{server}        > COALESCE((SELECT value::BIGINT FROM setting WHERE name = 'intake_bytes'), 268435456) THEN
{server}    RAISE EXCEPTION 'the intake holds as much of % as one node may have waiting (% parts, % bytes)', NEW.node,
{server}      waiting.parts, waiting.bytes USING ERRCODE = 'configuration_limit_exceeded';
{server}  END IF;
{server}  RETURN NEW;
{server}END $bound$;
{server}DO $make$ BEGIN
{server}  EXECUTE format('ALTER FUNCTION intake_bound() SET search_path = pg_catalog, %I, pg_temp', current_schema());
{server}END $make$;
{server}CREATE TRIGGER bound BEFORE INSERT ON intake FOR EACH ROW EXECUTE FUNCTION intake_bound();
)",
                                                                R"(
ALTER TABLE spool_file ADD COLUMN owner TEXT NOT NULL DEFAULT '';
CREATE INDEX spool_file_owner ON spool_file (owner) WHERE owner <> '';
ALTER TABLE session ADD COLUMN surplus {number} NOT NULL DEFAULT 0;
ALTER TABLE daily_session ADD COLUMN surplus {number} NOT NULL DEFAULT 0;
{server}-- What a node of an older program sends, it sends as its own.
{server}ALTER TABLE intake ADD COLUMN owner BIGINT NOT NULL DEFAULT -1 CHECK (owner BETWEEN -1 AND 4294967295);
{server}DO $make$ BEGIN
{server}  IF EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'varve_usage_node') THEN
{server}    GRANT INSERT (owner) ON intake TO varve_usage_node;
{server}  END IF;
{server}END $make$;
)"};

}  // namespace

const SqlDatabaseKind& usage_kind() {
  static const SqlDatabaseKind kKind{
      .name = "usage database", .setting_table = "setting", .writer_lock = 7562872601, .has_strangers = true};
  return kKind;
}

std::span<const std::string_view> schema_scripts() { return kScripts; }

void migrate(SqlConnection& sql) { migrate_schema(sql, kScripts); }

}  // namespace varve::usage
