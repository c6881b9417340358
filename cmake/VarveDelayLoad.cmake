# varve_delay_load(NAME LIBRARY TARGET): varve::NAME has the headers of TARGET, an imported one, and stand-ins for the functions of lib<LIBRARY>.so, which is loaded when one of
# them is called first (core/base/process/delay_load.h). Sanitizers, which want to see all libraries from the start, and machines that the stand-ins are not written for have it linked
# as ever. No tool sees that the program needs it: debian/control names its package.
if(CMAKE_SYSTEM_PROCESSOR STREQUAL x86_64 AND NOT VARVE_SANITIZE AND NOT VARVE_FUZZ)
  set(VARVE_DELAYS_LOADING TRUE)
  enable_language(ASM)
endif()

# varve_stand_ins(TARGET FILE): a static library with those for all functions of the shared library FILE, which may be a target's.
function(varve_stand_ins target file)
  set(assembly ${CMAKE_CURRENT_BINARY_DIR}/${target}.s)
  add_custom_command(OUTPUT ${assembly}
    COMMAND ${PROJECT_SOURCE_DIR}/cmake/delay-load ${file} > ${assembly}
    DEPENDS ${file} ${PROJECT_SOURCE_DIR}/cmake/delay-load VERBATIM)
  add_library(${target} STATIC ${assembly})
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
  target_link_libraries(${target} PUBLIC varve::base)
  target_link_options(${target} INTERFACE -Wl,--gc-sections)  # stand-ins that nothing calls
endfunction()

function(varve_delay_load name library target)
  find_library(VARVE_LIBRARY_${name} ${library} REQUIRED)
  if(VARVE_DELAYS_LOADING)
    varve_stand_ins(varve_${name} ${VARVE_LIBRARY_${name}})
  else()
    add_library(varve_${name} INTERFACE)
    target_link_libraries(varve_${name} INTERFACE ${VARVE_LIBRARY_${name}})
  endif()
  target_include_directories(varve_${name} SYSTEM INTERFACE $<TARGET_PROPERTY:${target},INTERFACE_INCLUDE_DIRECTORIES>)
  add_library(varve::${name} ALIAS varve_${name})
endfunction()
