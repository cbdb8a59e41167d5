# cmake --install, and the package for find_package(trireme): one target per folder, and trireme::trireme for all of them.
include(CMakePackageConfigHelpers)

get_property(libraries GLOBAL PROPERTY TRIREME_LIBRARIES)
add_library(trireme_trireme INTERFACE)
add_library(trireme::trireme ALIAS trireme_trireme)
set_target_properties(trireme_trireme PROPERTIES EXPORT_NAME trireme)
target_link_libraries(trireme_trireme INTERFACE ${libraries})

# What is installed is what `make build` builds.
add_custom_target(trireme_installed DEPENDS ${libraries} trireme)
if(TRIREME_WITH_TORCH)
  add_dependencies(trireme_installed trireme-torch)
endif()

install(TARGETS ${libraries} trireme_trireme EXPORT trireme_targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS trireme RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(TRIREME_WITH_TORCH)
  install(TARGETS trireme-torch RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/trireme DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.hpp"
        PATTERN "testing" EXCLUDE PATTERN "testdata" EXCLUDE)
install(EXPORT trireme_targets NAMESPACE trireme:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/trireme)

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/trireme-config.cmake.in ${PROJECT_BINARY_DIR}/trireme-config.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/trireme)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/trireme-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/trireme-config.cmake ${PROJECT_BINARY_DIR}/trireme-config-version.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/trireme)
