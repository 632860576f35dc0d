#include "bind.h"

NB_MODULE(_native, m) {
  m.doc() = "Engine of Headrace. Use the classes of the package headrace.";
#ifndef HEADRACE_DCHECKS
  // A user's module-level loader that outlives the interpreter is no leak worth a warning.
  headrace::nb::set_leak_warnings(false);
#endif
  headrace::bind_errors(m);
  headrace::bind_process(m);
  headrace::bind_store(m);
  headrace::bind_keys(m);
  headrace::bind_cache(m);
  headrace::bind_checkpoint(m);
  headrace::bind_range_reader(m);
  headrace::bind_upload(m);
  headrace::bind_probe(m);
  headrace::bind_dataset(m);
  headrace::bind_inflate(m);
  headrace::bind_arrow_column(m);
  headrace::bind_decode(m);
  headrace::bind_loader(m);
  headrace::bind_batch_reader(m);
  headrace::bind_log(m);
  headrace::bind_order(m);
  headrace::bind_pack(m);
  headrace::bind_target_record(m);
  headrace::bind_verify(m);
  headrace::bind_copy(m);
  headrace::bind_sim(m);
  headrace::bind_whoami(m);
  headrace::bind_table(m);
  headrace::bind_mixture(m);
  headrace::bind_mosaic(m);
  headrace::bind_litdata_order(m);
  headrace::bind_list_sources(m);
  headrace::bind_prove_order(m);
}
