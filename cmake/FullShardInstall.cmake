# cmake --install: the programs, the device module, decks, cluster scripts, what prepares token files, and the README.
include(GNUInstallDirs)

# The installed programs find LibTorch and HDF5 where they were linked from.
foreach(program IN ITEMS fullshard fullshard-ckpt)
  if(TARGET ${program})
    set_target_properties(${program} PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()
# Where DeviceModule::installed_file() looks for it.
if(TARGET fullshard_cuda)
  set_target_properties(fullshard_cuda PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
  install(TARGETS fullshard_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_BINDIR}/../lib/fullshard)
endif()
foreach(folder IN ITEMS inputs slurm)
  if(EXISTS ${PROJECT_SOURCE_DIR}/${folder})
    install(DIRECTORY ${folder} DESTINATION ${CMAKE_INSTALL_DATADIR}/fullshard USE_SOURCE_PERMISSIONS)
  endif()
endforeach()
install(PROGRAMS tools/tokenize.py DESTINATION ${CMAKE_INSTALL_DATADIR}/fullshard/tools)
install(DIRECTORY tools/tokenizing DESTINATION ${CMAKE_INSTALL_DATADIR}/fullshard/tools
        FILES_MATCHING PATTERN *.py)
install(FILES README.md DESTINATION ${CMAKE_INSTALL_DOCDIR} OPTIONAL)
