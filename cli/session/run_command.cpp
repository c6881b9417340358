#include "cli/base/open_image.h"
#include "cli/command.h"
#include "cli/session/session_run.h"
#include "core/base/errors.h"

namespace varve::cli {

void add_run_command(CLI::App& app, Context& context) {
  const auto options = std::make_shared<RunOptions>();
  auto* run =
      app.add_subcommand("run", "Runs a command in a session: a private writable layer over a lazily mounted image");
  run->add_option("IMAGE", options->image,
                  "The image, indexed; all words behind it are the command, else the image's own");
  run->add_option("--rootfs", options->rootfs,
                  "In place of an image: a folder with an unpacked tree, which is not changed")
      ->type_name("DIR");
  run->add_flag("--rm", options->remove, "Remove the writable layer at the end");
  run->add_flag("-d,--detach", options->detach,
                "Leave it running, print its name and return; `varve session logs` shows what it says");
  add_terminal_options(*run, options->session.tty);
  run->add_option("--name", options->name, "A name for `varve session`")->type_name("NAME");
  run->add_option("--stats", options->stats_file, "Write times and traffic to this file, as JSON")->type_name("FILE");
  add_session_options(*run, options->session, "-v,--volume");
  add_container_options(*run, options->session);
  auto* no_prefetch = run->add_flag("--no-prefetch", options->no_prefetch,
                                    "Fetch only what is read, not what a start is about to read");
  run->add_flag("--fill", options->fill,
                "Fetch the rest of the image too, behind whoever reads, for as long as the session runs")
      ->excludes(no_prefetch);
  run->add_flag("--index-here", options->index_here, kIndexHereHelp);
  run->add_flag("--record,!--no-record", options->record,
                "Record which libraries and files of the image the session uses, for `varve usage`");
  run->add_option("--usage-spool", options->usage_spool,
                  "The folder that records go to (default: usage/spool under --root)")
      ->type_name("DIR");
  run->footer(
      "Examples:\n  varve run --rm oci:image:latest python3 -c 'import numpy'\n"
      "  varve run -d --name lab --memory 16GB -v $HOME/notebooks:/work -w /work registry.example/team/science:42 "
      "jupyter lab\n"
      "  varve run --rm --gpus all oci:image:latest python3 -c 'import torch; print(torch.cuda.device_count())'\n\n"
      "Options stand before the image; `--` may stand before the command. -v is --volume here: `varve -v run` says "
      "more.\n"
      "The exit status is the command's; 125 if Varve failed before it, 126 if it may not be executed, 127 if it is "
      "not there.");
  run->callback([&context, options] {
    if (options->image.empty() == options->rootfs.empty())
      throw UsageError("either an IMAGE or --rootfs DIR; with --rootfs the words of the command stand behind --");
    if (!options->rootfs.empty() && options->record)
      throw UsageError("--record needs an image: use is recorded by its digest");
    if (context.global.json && !options->detach)
      throw UsageError(
          "--json: standard output is the command's own; --stats FILE writes what the run was like as JSON, and -d "
          "--json prints the session");
    if (options->detach && options->session.tty)
      throw UsageError("--tty and --detach: what runs detached has no terminal");
    check_terminal(options->session.tty);
    check(options->session);
    context.exit_status = run_as_asked(context, *options);
  });
}

}  // namespace varve::cli
