# trireme_gpu_architectures(OUT): which GPUs the kernels are compiled for, as TORCH_CUDA_ARCH_LIST: those of this machine, or without one
# all that are supported.
function(trireme_gpu_architectures out)
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader OUTPUT_VARIABLE gpus ERROR_QUIET
                  OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE no_gpu)
  if(no_gpu)
    set(gpus "8.0;8.9;9.0a;10.0")
  else()
    string(REGEX REPLACE "[\r\n]+" ";" gpus "${gpus}")
    list(REMOVE_DUPLICATES gpus)
    list(TRANSFORM gpus REPLACE "^9\\.0$" "9.0a")  # the kernels for Hopper use what only "a" has
  endif()
  set(${out} "${gpus}" PARENT_SCOPE)
endfunction()
