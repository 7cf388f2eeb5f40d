# cmake --install: the program, decks and cluster scripts.
include(GNUInstallDirs)
if(TARGET fullshard)
  set_target_properties(fullshard PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
  install(TARGETS fullshard RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(DIRECTORY inputs/ DESTINATION ${CMAKE_INSTALL_DATADIR}/fullshard/inputs)
install(FILES README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
