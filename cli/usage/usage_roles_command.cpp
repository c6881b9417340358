#include <memory>
#include <ostream>

#include <nlohmann/json.hpp>

#include "analyzer/usage/roles.h"
#include "cli/usage/usage_command.h"
#include "core/base/errors.h"

namespace varve::cli {
namespace {

struct RolesArguments {
  std::string db;
  usage::RoleNames names;
  bool print = false;
};

void run_roles(Context& context, const RolesArguments& arguments) {
  if (arguments.print) {
    context.out << usage::role_statements(arguments.names);
    return;
  }
  if (arguments.db.empty()) fail<UsageError>("usage roles: name the database with --db, or --print what would be run");
  const bool superuser = usage::make_roles(arguments.db, arguments.names);
  if (context.global.json) {
    context.print_json(
        {{"nodes", arguments.names.nodes}, {"readers", arguments.names.readers}, {"superuser", superuser}});
    return;
  }
  context.out << fmt::format("{} nodes may send, {} roles may read; how they prove who they are is for pg_hba.conf\n",
                             arguments.names.nodes.size(), arguments.names.readers.size());
  if (!superuser)
    context.err << "not run as a superuser: nodes may still store large objects and temporary files of any size; let a "
                   "superuser run what --print shows\n";
}

}  // namespace

void add_usage_roles_command(CLI::App& usage, Context& context) {
  const auto arguments = std::make_shared<RolesArguments>();
  auto* command = usage.add_subcommand(
      "roles", "PostgreSQL roles for a fleet: nodes that only add what they send, and readers; harmless to repeat");
  command->add_option("--db", arguments->db, "The database, as its owner: postgresql://...");
  command->add_option("--node", arguments->names.nodes, "A role for a node: it sends, and sees how far; nothing else")
      ->type_name("NAME")
      ->allow_extra_args(false);
  command->add_option("--reader", arguments->names.readers, "A role for reports: it reads, without users and spools")
      ->type_name("NAME")
      ->allow_extra_args(false);
  command->add_flag("--print", arguments->print, "Print the statements, run none");
  command->footer(
      "Examples:\n  varve usage roles --db postgresql://usage@db/usage --node node1 --node node2 --reader report\n"
      "  varve usage roles --print --node node1 | psql -h db -U postgres usage");
  command->callback([&context, arguments] { run_roles(context, *arguments); });
}

}  // namespace varve::cli
