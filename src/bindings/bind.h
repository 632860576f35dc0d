#pragma once
/// \file
/// What the files of the extension module share: one `bind_*` function per Python class, called
/// once by module.cc.
///
/// Rules of this folder: only headers of include/headrace/ and nanobind; every call that can wait
/// goes through waiting.h; every Status becomes an exception in errors.cc; engine objects are held
/// by Guarded (process.h).
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
// All casters here: a file that lacked one would compile another meaning of the same template, and
// the linker keeps either.
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "text.h"

namespace headrace {

namespace nb = nanobind;

void bind_errors(nb::module_& m);
void bind_process(nb::module_& m);
void bind_store(nb::module_& m);
void bind_range_reader(nb::module_& m);
void bind_upload(nb::module_& m);
void bind_dataset(nb::module_& m);
void bind_inflate(nb::module_& m);
void bind_arrow_column(nb::module_& m);
void bind_loader(nb::module_& m);
void bind_batch_reader(nb::module_& m);
void bind_log(nb::module_& m);
void bind_decode(nb::module_& m);
void bind_cache(nb::module_& m);
void bind_keys(nb::module_& m);
void bind_checkpoint(nb::module_& m);
void bind_probe(nb::module_& m);
void bind_order(nb::module_& m);
void bind_pack(nb::module_& m);
void bind_target_record(nb::module_& m);
void bind_verify(nb::module_& m);
void bind_copy(nb::module_& m);
void bind_sim(nb::module_& m);
void bind_whoami(nb::module_& m);
void bind_table(nb::module_& m);
void bind_list_sources(nb::module_& m);
void bind_mixture(nb::module_& m);
void bind_mosaic(nb::module_& m);
void bind_litdata_order(nb::module_& m);
void bind_prove_order(nb::module_& m);

}  // namespace headrace
