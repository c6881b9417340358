// GCC's unwinder, which is linked in statically, asks glibc 2.35 and newer for the unwind tables of an address. Images
// with 2.34 have no such function, and a program that needs it does not start there at all. This one answers from what
// every glibc has.
#include <features.h>

#if defined(__GLIBC_PREREQ)
#if __GLIBC_PREREQ(2, 35)
#include <dlfcn.h>
#include <link.h>

#include <cstdint>

namespace {

struct Search {
  std::uintptr_t address;
  dl_find_object* found;
};

int look_into(dl_phdr_info* object, std::size_t, void* data) {
  const auto& search = *static_cast<Search*>(data);
  const ElfW(Phdr)* tables = nullptr;
  std::uintptr_t begin = UINTPTR_MAX, end = 0;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const auto& segment = object->dlpi_phdr[i];
    if (segment.p_type == PT_GNU_EH_FRAME) tables = &segment;
    if (segment.p_type != PT_LOAD) continue;
    const std::uintptr_t from = object->dlpi_addr + segment.p_vaddr;
    begin = from < begin ? from : begin;
    end = from + segment.p_memsz > end ? from + segment.p_memsz : end;
  }
  if (search.address < begin || search.address >= end || !tables) return 0;
  *search.found = {};
  search.found->dlfo_map_start = reinterpret_cast<void*>(begin);
  search.found->dlfo_map_end = reinterpret_cast<void*>(end);
  search.found->dlfo_eh_frame = reinterpret_cast<void*>(object->dlpi_addr + tables->p_vaddr);
  return 1;
}

}  // namespace

// Hidden: the libraries of the image, which come with their own unwinder, keep to their glibc.
extern "C" __attribute__((visibility("hidden"))) int _dl_find_object(void* address, dl_find_object* found) noexcept {
  Search search{reinterpret_cast<std::uintptr_t>(address), found};
  return ::dl_iterate_phdr(look_into, &search) == 1 ? 0 : -1;
}
#endif
#endif
