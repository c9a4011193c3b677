"""Every check that the kernel's description names for /dev/kfd and sysfs, so that coverage can be counted.

Sections: 0 dispatch and opening, 1 memory, address spaces and mmap, 2 queues and events, 6 sysfs. A check is covered by
refusals (`section/rule` of `refusals.REFUSALS`) or by tests (`module:test`). `NOT_EMULATED` says what is left out.
"""

from __future__ import annotations

D, M, P, Q, R, E, S, F = (
    "test_dispatch:",
    "test_memory:",
    "test_maps:",
    "test_queues:",
    "test_running:",
    "test_events:",
    "test_misc:",
    "test_sysfs:",
)

CHECKS: dict[str, tuple[str, ...]] = {
    # Section 0.
    "0 number 0 or past the table -> ENOTTY": (D + "test_numbers_outside_the_table",),
    "0 the table's end by kernel": (D + "test_the_table_ends_where_the_kernels_own_does",),
    "0 the type byte is not checked": (D + "test_the_type_byte_is_not_looked_at",),
    "0 the kernel's own direction bits count": (D + "test_the_kernels_directions_count_not_the_callers",),
    "0 a shorter argument is filled with zeros": (
        D + "test_a_short_argument_is_completed_with_zeros_and_only_its_bytes_come_back",
    ),
    "0 a longer argument works": (D + "test_a_longer_argument_is_taken",),
    "0 copied back on error too": (D + "test_the_argument_comes_back_when_the_call_failed",),
    "0 write-only calls copy nothing back": (D + "test_write_only_calls_give_nothing_back",),
    "0 a process that is not the opener -> EBADF": (D + "test_a_forked_child_is_refused",),
    "0 no GPU, or KFD locked by a reset -> EINVAL in 7.x": (
        D + "test_open_while_a_gpu_is_reset", D + "test_open_without_a_gpu",
    ),
    "0 opens of one process share everything": (D + "test_two_opens_share_one_process",),
    "0 the process's state outlives its descriptors": (D + "test_the_process_outlives_its_descriptors",),
    "0 processes are apart": (D + "test_another_process_has_its_own",),
    "0 CRIU without capability -> EACCES": (D + "test_checkpointing_needs_a_capability",),
    "0 old debugger calls -> EPERM": (D + "test_old_debugger_calls",),
    "0 a lost GPU": (
        "0 lost/ALLOC", "0 lost/ACQUIRE_VM", "0 lost/CREATE_QUEUE", "0 lost/MAP", R + "test_a_gpu_that_goes_away",
    ),
    # Section 1.
    **{
        f"1 {name}: unknown gpu_id -> EINVAL": (f"1 gpu_id/KFD_{name}: unknown GPU",)
        for name in (
            "CREATE_QUEUE", "SET_MEMORY_POLICY", "SET_SCRATCH_BACKING_VA", "SET_TRAP_HANDLER", "ACQUIRE_VM",
            "ALLOC_MEMORY_OF_GPU", "AVAILABLE_MEMORY", "IMPORT_DMABUF", "SMI_EVENTS", "GET_TILE_CONFIG",
        )
    },
    "1 unbound: CREATE_QUEUE, SET_MEMORY_POLICY, SET_TRAP_HANDLER -> ESRCH": (
        "1 bind/CREATE_QUEUE", "1 bind/SET_MEMORY_POLICY", "1 bind/SET_TRAP_HANDLER",
    ),
    "1 unbound: ALLOC, MAP, IMPORT, SET_SCRATCH -> ENODEV": (
        "1 bind/ALLOC", "1 bind/IMPORT", "1 bind/SET_SCRATCH", M + "test_two_gpus_have_two_address_spaces",
    ),
    "1 GET_VERSION by kernel": (D + "test_version",),
    "1 ACQUIRE_VM: bad descriptor -> EINVAL": ("1 ACQUIRE_VM/bad descriptor",),
    "1 ACQUIRE_VM: the same file again -> 0": (S + "test_acquiring_again_changes_nothing",),
    "1 ACQUIRE_VM: another file -> EBUSY": ("1 ACQUIRE_VM/another drm file",),
    "1 ACQUIRE_VM: no amdgpu file -> EINVAL": ("1 ACQUIRE_VM/no amdgpu file",),
    "1 ACQUIRE_VM: a VM that is KFD's -> EINVAL": ("1 ACQUIRE_VM/a VM that is KFD's already",),
    "1 ACQUIRE_VM: KFD holds the file": (S + "test_the_render_node_may_be_closed",),
    "1 ACQUIRE_VM: the trap pages are mapped": (M + "test_the_trap_handler_is_in_every_address_space",),
    "1 APERTURES: 0 counts": (S + "test_apertures_are_counted_and_filled",),
    "1 APERTURES: more than nodes -> EINVAL": (
        "1 APERTURES/more than nodes", S + "test_an_old_kernel_takes_more_room_than_there_are_nodes",
        S + "test_processors_count_as_nodes",
    ),
    "1 APERTURES: min(n, count), GPUs only": (S + "test_apertures_are_counted_and_filled",),
    "1 APERTURES: copy failure -> EFAULT": ("1 APERTURES/bad pointer",),
    "1 APERTURES: ranges of gfx9 to gfx12": (S + "test_ranges_of_a_gfx12",),
    "1 APERTURES: the old call": (S + "test_the_old_call_for_apertures",),
    "1 ALLOC: size 0 -> EINVAL, first of all": ("1 ALLOC/size 0", "1 ALLOC/size 0 before the GPU"),
    "1 ALLOC: over a range of SVM -> EADDRINUSE, not for VRAM without address": (
        S + "test_memory_cannot_be_allocated_over_svm",
    ),
    "1 ALLOC: public VRAM with small BAR -> EINVAL": ("1 ALLOC/public VRAM on small BAR",),
    "1 ALLOC: first placement counts": (M + "test_the_first_placement_counts",),
    "1 ALLOC: no placement -> EINVAL": ("1 ALLOC/no placement",),
    "1 ALLOC: user memory at 0 -> EINVAL, bad -> EFAULT": ("1 ALLOC/user memory at 0", "1 ALLOC/user memory unmapped"),
    "1 ALLOC: user memory works": (M + "test_user_memory",),
    "1 ALLOC: doorbell size": ("1 ALLOC/doorbell size", M + "test_doorbells_as_a_buffer"),
    "1 ALLOC: remapped registers": ("1 ALLOC/remapped registers size", M + "test_remapped_registers"),
    "1 ALLOC: AQL_QUEUE_MEM takes half, 0 then -> EINVAL": (
        "1 ALLOC/queue memory of one byte halves to nothing", M + "test_queue_memory_is_mapped_twice",
    ),
    "1 ALLOC: rounded up to pages": (M + "test_sizes_are_rounded_up_to_pages",),
    "1 ALLOC: limits -> ENOMEM": ("1 ALLOC/limit of GTT", "1 ALLOC/limit of VRAM"),
    "1 ALLOC: the address is not validated": (M + "test_the_address_is_not_looked_at_before_map",),
    "1 ALLOC: handle gpu_id << 32 | lowest free number": (M + "test_handles_are_gpu_id_and_lowest_free_number",),
    "1 ALLOC: mmap_offset is a DRM offset": (
        M + "test_offsets_begin_at_4_gib_and_are_whole_pages", M + "test_memory_shows_what_the_other_side_wrote",
    ),
    "1 FREE: the event page -> EPERM": ("1 FREE/event page",),
    "1 FREE: unknown GPU or number -> EINVAL": ("1 FREE/unknown GPU", "1 FREE/unknown number"),
    "1 FREE: still mapped -> EBUSY, the handle stays": (
        "1 FREE/still mapped", M + "test_two_gpus_have_two_address_spaces",
    ),
    "1 FREE: pages are given back": (M + "test_what_is_freed_is_given_back",),
    **{
        f"1 {name}: {rule}": (f"1 {name}/{rule}",)
        for name in ("MAP", "UNMAP")
        for rule in (
            "no devices", "n_success beyond", "bad array", "unknown GPU in handle", "unknown number", "unknown device",
        )
    },
    "1 MAP: n_success starts the loop and counts": (
        M + "test_n_success_continues", D + "test_the_argument_comes_back_when_the_call_failed",
    ),
    "1 MAP: address 0 -> EINVAL": ("1 MAP/address 0",),
    "1 MAP: not aligned -> EINVAL": ("1 MAP/address not aligned",),
    "1 MAP: beyond the address space -> EINVAL": ("1 MAP/beyond the address space",),
    "1 MAP: overlap -> EINVAL": ("1 MAP/overlap",),
    "1 MAP: already mapped -> 0": (M + "test_mapping_again_changes_nothing",),
    "1 MAP: rights": (M + "test_rights_of_a_mapping",),
    "1 MAP: done on return": (M + "test_memory_shows_what_the_other_side_wrote",),
    "1 MAP: VRAM of another GPU": (M + "test_vram_behind_a_small_bar_is_out_of_reach_of_others",),
    "1 UNMAP: not mapped -> EINVAL": ("1 UNMAP/not mapped", M + "test_unmapped_is_gone_and_can_be_mapped_again"),
    "1 UNMAP: held by a queue -> EBUSY": (
        "1 UNMAP/held by a queue", Q + "test_buffers_of_a_queue_stay_until_it_is_destroyed",
    ),
    "1 AVAILABLE_MEMORY: rounded down to 2 MiB": (
        M + "test_available_memory_is_rounded_and_shrinks", M + "test_an_integrated_gpu_counts_system_memory",
    ),
    "1 IMPORT: descriptor errors": ("1 IMPORT/not open", "1 IMPORT/no dma-buf"),
    "1 IMPORT: neither VRAM nor GTT -> EINVAL": ("1 IMPORT/neither VRAM nor GTT",),
    "1 IMPORT: writable and executable": (M + "test_a_buffer_as_a_file",),
    "1 EXPORT: bad handle -> EINVAL": ("1 EXPORT/bad handle", "1 EXPORT/bad GPU in handle"),
    "1 GET_DMABUF_INFO": ("1 DMABUF_INFO/not open", M + "test_a_buffer_as_a_file"),
    "1 SET_MEMORY_POLICY: values -> EINVAL, before the GPU": (
        "1 MEMORY_POLICY/default", "1 MEMORY_POLICY/alternate", "1 MEMORY_POLICY/before the GPU",
        S + "test_memory_policies",
    ),
    "1 SET_SCRATCH, SET_TRAP_HANDLER: only stored": (S + "test_addresses_that_are_only_kept",),
    "1 XNACK: negative asks": (S + "test_xnack_is_off",),
    "1 XNACK: queues -> EBUSY": ("1 XNACK/queues exist",),
    "1 XNACK: unsupported -> EPERM": ("1 XNACK/not supported",),
    "1 SVM: alignment, 0, size of the request, attributes -> EINVAL": (S + "test_svm_refusals",),
    "1 SVM: unmapped -> EFAULT": (S + "test_svm_of_nothing",),
    "1 SVM: attributes are kept": (S + "test_svm_attributes_are_kept_by_page",),
    "1 RUNTIME_ENABLE: twice -> EBUSY": ("1 RUNTIME/twice",),
    "1 RUNTIME_ENABLE: queues -> EEXIST": ("1 RUNTIME/queues exist",),
    "1 RUNTIME_ENABLE: bit 0 clear disables": (S + "test_runtime_on_and_off",),
    "1 SMI_EVENTS: a descriptor": (S + "test_smi_files_hear_of_faults",),
    "1 GET_CLOCK_COUNTERS never fails": (S + "test_clocks",),
    "1 GET_TILE_CONFIG": ("1 TILE_CONFIG/bad pointer", S + "test_tile_tables_are_cut_to_what_there_is"),
    "1 mmap doorbell: unknown gpu_id -> ENODEV": (P + "test_doorbells_of_an_unknown_gpu",),
    "1 mmap doorbell: exactly 8192 bytes": (P + "test_doorbells_have_one_length",),
    "1 mmap doorbell: low bits do not place it": (P + "test_low_bits_below_the_slice_do_not_matter",),
    "1 mmap doorbell: before any queue": (P + "test_doorbells_can_be_mapped_before_any_queue",),
    "1 mmap doorbell: one slice per GPU": (P + "test_each_gpu_has_its_own_doorbells",),
    "1 mmap MMIO: one page, unknown GPU": (P + "test_registers",),
    "1 mmap EVENTS: until 7.2": (
        P + "test_the_kernels_event_page", P + "test_new_kernels_map_neither_events_nor_reserved_memory",
    ),
    "1 mmap RESERVED_MEM: in 6.12": (
        P + "test_reserved_memory_of_an_old_kernel", P + "test_new_kernels_map_neither_events_nor_reserved_memory",
    ),
    "1 mmap: offsets are whole pages": (P + "test_an_offset_that_is_no_page",),
    "1 mmap render node: start of a buffer, not beyond": (
        P + "test_a_map_begins_at_a_buffer_and_fits", P + "test_a_freed_buffers_offset_shows_nothing",
    ),
    "1 mmap render node: another file -> EACCES": (P + "test_only_the_acquired_file_maps_it",),
    "1 mmap render node: user memory -> EPERM": (M + "test_user_memory",),
    # Section 2, CREATE_QUEUE.
    "2.1 percentage above 100 -> EINVAL": ("2.1/percentage", Q + "test_the_bits_above_a_percentage_choose_a_die"),
    "2.1 priority above 15 -> EINVAL": ("2.1/priority",),
    "2.2 ring address -> EFAULT": ("2.2/ring address",),
    "2.2 ring size no power of two -> EINVAL": ("2.2/ring size",),
    "2.2 below 1024 becomes 1024": (Q + "test_small_rings_become_1024_bytes",),
    "2.2 metadata ring since 1.22": (
        Q + "test_metadata_rings_of_new_kernels", Q + "test_metadata_rings_were_padding",
    ),
    "2.3 pointer addresses -> EFAULT, 0 fails later": (
        "2.3/read pointer", "2.3/write pointer", "2.3/write pointer 0 fails later",
    ),
    "2.3 EOP and save area addresses -> EFAULT": ("2.3/EOP", "2.3/save area"),
    "2.4 unknown type -> ENOTSUPP (524)": (
        "2.4/type", "2.4/type before the GPU", "2.4/ring size before the type",
        Q + "test_not_the_kernels_eopnotsupp",
    ),
    "2.5 GPU, address space before the buffers": ("2.5/GPU before the buffers", "1 bind/CREATE_QUEUE"),
    "2.5 engine of SDMA_BY_ENG_ID": (Q + "test_a_queue_of_a_chosen_engine",),
    "2.7 127 queues on a GPU -> ENOSPC": (Q + "test_127_queues_of_a_process_on_a_gpu",),
    "2.7 write pointer on another GPU -> EINVAL": (Q + "test_the_write_pointer_lies_on_the_same_gpu",),
    "2.7 doorbells exhausted -> EBUSY": (Q + "test_compute_doorbells_skip_those_of_other_engines",),
    "2.7 SDMA exhausted -> ENOMEM": (Q + "test_queues_of_copy_engines", Q + "test_no_engine_for_links"),
    "2.7 GPU in reset -> EIO": ("2.7/GPU is being reset",),
    "2.8 ids: lowest free, from 0": (Q + "test_ids_and_doorbells_are_the_lowest_free",),
    "2.8 active only with ring, address, percentage": (R + "test_a_stopped_queue_goes_on_later",),
    "2.9 doorbell_offset: type, gpu_id, cell * 8": (
        Q + "test_what_create_gives_back", Q + "test_queue_ids_count_for_the_process_doorbells_for_the_gpu",
    ),
    "2.9 compute doorbells skip other engines": (Q + "test_compute_doorbells_skip_those_of_other_engines",),
    "2.9 SDMA doorbells": (Q + "test_queues_of_copy_engines",),
    "2 both sizes of the argument": (D + "test_create_queue_takes_both_sizes",),
    # Section 2, buffers.
    "2 buffers: write and read pointer are one page": (
        "2 buffers/write pointer not mapped", "2 buffers/read pointer not mapped",
        Q + "test_pointers_need_a_mapping_of_one_page",
    ),
    "2 buffers: pointers may share a page, any offset": (
        Q + "test_pointers_in_one_page_or_two", Q + "test_both_pointers_may_be_one",
    ),
    "2 buffers: ring starts its mapping": ("2 buffers/ring inside its mapping",),
    "2 buffers: ring has its mapping's size": (
        "2 buffers/ring smaller than its mapping", "2 buffers/ring larger than its mapping",
    ),
    "2 buffers: ring below a page, by kernel": (
        "2 buffers/ring of 1024 in more than a page", Q + "test_a_ring_below_a_page_is_not_compared",
        Q + "test_a_ring_below_a_page_needs_one_page",
    ),
    "2 buffers: EOP may be 0": (Q + "test_no_eop_buffer_at_all",),
    "2 buffers: EOP size, by kernel": (
        "2 buffers/EOP size 0", "2 buffers/EOP size of two pages", Q + "test_a_larger_eop_buffer",
        Q + "test_an_eop_buffer_has_4096_bytes",
    ),
    "2 buffers: EOP mapping": ("2 buffers/EOP not mapped",),
    "2 buffers: ctl_stack_size is equal": (
        "2 buffers/control stack too small", "2 buffers/control stack too large",
    ),
    "2 buffers: ctx_save_restore_size is at least": (
        "2 buffers/save area too small", Q + "test_a_larger_save_area",
    ),
    "2 buffers: save area with debug memory is exact": (
        "2 buffers/save area larger than its mapping", "2 buffers/save size of the whole buffer",
        "2 buffers/save area not mapped",
    ),
    "2 buffers: or a range of SVM that stays mapped": (S + "test_a_save_area_in_svm",),
    "2 buffers: sizes by card": (
        Q + "test_figures_of_the_models_are_the_kernels", F + "test_save_areas_of_known_cards",
    ),
    "2 buffers: SDMA has neither EOP nor save area": (Q + "test_copy_queues_need_no_save_area",),
    "2 buffers: held until DESTROY_QUEUE": (Q + "test_buffers_of_a_queue_stay_until_it_is_destroyed",),
    # Section 2, the other calls.
    "2 UPDATE: percentage, priority, ring": (
        "2 UPDATE/percentage", "2 UPDATE/priority", "2 UPDATE/ring address", "2 UPDATE/ring size",
    ),
    "2 UPDATE: unknown -> EFAULT": ("2 UPDATE/unknown",),
    "2 UPDATE: new ring no mapping -> EFAULT": ("2 UPDATE/ring not mapped",),
    "2 UPDATE: a new ring": (
        Q + "test_update_can_move_the_ring", R + "test_a_ring_that_moves_goes_on_where_the_pointers_are",
    ),
    "2 UPDATE: ring 0 disables": (R + "test_a_stopped_queue_goes_on_later",),
    "2 DESTROY: unknown -> EINVAL": ("2 DESTROY/unknown",),
    "2 DESTROY: ETIME or EIO, the queue is gone": (
        R + "test_a_hang_is_found_when_the_queue_is_destroyed", R + "test_a_gpu_that_goes_away",
    ),
    "2 CU_MASK: count -> EINVAL": ("2 CU_MASK/count 0", "2 CU_MASK/count 33"),
    "2 CU_MASK: above 1024 is cut": (Q + "test_a_mask_beyond_1024_bits_is_cut",),
    "2 CU_MASK: unknown, bad pointer -> EFAULT": ("2 CU_MASK/unknown", "2 CU_MASK/bad pointer"),
    "2 CU_MASK: pairs": ("2 CU_MASK/half of a pair",),
    "2 GWS: unknown -> EINVAL": ("2 GWS/unknown queue",),
    "2 GWS: device without -> ENODEV": (Q + "test_a_gpu_without_gws",),
    "2 GWS: another has it -> EBUSY, first_gws 0": (Q + "test_one_queue_has_the_gws",),
    "2 GWS: nothing to free -> EINVAL": ("2 GWS/nothing to free",),
    "2 WAVE_STATE": ("2 WAVE_STATE/unknown", "2 WAVE_STATE/active", Q + "test_a_stopped_queue_tells_its_wave_state"),
    # Section 2, events.
    "2 CREATE_EVENT: page twice -> EINVAL": ("2 CREATE_EVENT/page is set",),
    "2 CREATE_EVENT: bad handle -> EINVAL": ("2 CREATE_EVENT/bad handle", "2 CREATE_EVENT/bad GPU"),
    "2 CREATE_EVENT: small page -> EINVAL": ("2 CREATE_EVENT/small page",),
    "2 CREATE_EVENT: no page in 7.3 -> ENOMEM": ("2 CREATE_EVENT/no page",),
    "2 CREATE_EVENT: a page of the kernel, 256 slots": (
        E + "test_a_page_of_the_kernel_has_256_slots_until_more_is_mapped", P + "test_the_kernels_event_page",
    ),
    "2 CREATE_EVENT: no slot left -> ENOSPC": (E + "test_a_page_of_the_process_has_a_slot_per_8_bytes",),
    "2 CREATE_EVENT: ids": (
        E + "test_what_create_gives_back", E + "test_signal_events_have_the_lowest_free_numbers",
    ),
    "2 CREATE_EVENT: slots begin as ones": (E + "test_the_page_is_filled_with_ones",),
    "2 CREATE_EVENT: trigger data and offset": (E + "test_what_create_gives_back",),
    "2 SET, RESET: unknown -> EINVAL": ("2 SET_EVENT/unknown", "2 RESET_EVENT/unknown"),
    "2 SET, RESET: other types -> EINVAL": (
        "2 SET_EVENT/no signal event", "2 RESET_EVENT/no signal event",
        E + "test_debug_events_have_slots_but_only_the_gpu_sets_them",
    ),
    "2 DESTROY_EVENT: unknown -> EINVAL": ("2 DESTROY_EVENT/unknown",),
    "2 WAIT: too many -> ENOMEM": ("2 WAIT/too many",),
    "2 WAIT: copy -> EFAULT": ("2 WAIT/bad pointer",),
    "2 WAIT: unknown -> EINVAL, result 2": (
        "2 WAIT/unknown", E + "test_a_refused_wait_says_so_in_its_result",
        E + "test_a_refused_wait_leaves_other_events_alone",
    ),
    "2 WAIT: complete": (
        E + "test_set_reset_wait", E + "test_one_of_two_or_both", E + "test_no_event_at_all_is_complete",
    ),
    "2 WAIT: a timeout is a success": (E + "test_the_timeout_is_in_milliseconds_from_now",),
    "2 WAIT: a destroyed event -> EIO": (E + "test_a_destroyed_event_fails_the_wait",),
    "2 WAIT: relative ms, 0 polls, all ones is endless": (
        E + "test_the_timeout_is_in_milliseconds_from_now", E + "test_setting_wakes_who_waits",
    ),
    "2 WAIT: auto_reset": (E + "test_auto_reset_is_consumed_once",),
    "2 WAIT: last_event_age": (E + "test_the_age_tells_what_was_missed", E + "test_age_0_does_not_count"),
    "2 interrupt: mailbox and number": (
        R + "test_an_interrupt_wakes_a_waiter", R + "test_the_mailbox_is_emptied",
        R + "test_an_interrupt_without_its_mailbox_wakes_nobody",
        R + "test_an_interrupt_with_a_wrong_number_finds_written_mailboxes",
    ),
    "2 memory exception": (R + "test_a_page_fault", R + "test_fences_fault_without_an_eop_buffer"),
    "2 hardware exception": (R + "test_a_hang_is_found_when_the_queue_is_destroyed",),
    # Section 6.
    "6 root files": (F + "test_an_r9700_reads_byte_for_byte_as_the_real_one", F + "test_several_gpus"),
    "6 gpu_id: 0 for processors, 16 bits, unique": (F + "test_several_gpus",),
    "6 name": (F + "test_an_r9700_reads_byte_for_byte_as_the_real_one",),
    "6 properties: order and values": (
        F + "test_an_r9700_reads_byte_for_byte_as_the_real_one", F + "test_every_card_has_its_node",
    ),
    "6 properties: capability2 in 7.x": (F + "test_new_kernels_add_a_line_and_a_bit",),
    "6 no device permission -> EPERM": (F + "test_a_container_without_devices",),
    "6 mem_banks: heaps": (F + "test_heaps_tell_a_small_bar",),
    "6 io_links": (F + "test_an_r9700_reads_byte_for_byte_as_the_real_one", F + "test_several_gpus"),
    "6 caches": (F + "test_caches_name_who_shares_them", F + "test_every_card_has_its_node"),
}  # fmt: skip

NOT_EMULATED = {
    "0 open by a 32-bit process -> EPERM": "there are none here",
    "0 a minor number other than 0 -> ENODEV": "there is one file",
    "0 a hole in the table -> EINVAL": "the tables have none; calls that are not emulated are refused so",
    "1 SVM without HSA_AMD_SVM -> EPERM": "all kernels here have it",
    "1 mmap doorbell: not inherited on fork, ENOMEM": "a child is refused altogether",
    "2.7 no queue id of 1024 left -> ENOMEM": "127 queues on each of 8 GPUs come before it",
    "2.7 no-oversubscription, device-wide limit -> EPERM": "not the default policy",
    "2 DESTROY: being destroyed, under debug -> EBUSY": "destruction is at once; there is no debugger",
    "2 save areas of several dies, GFX7/8 AQL halves": "no such card here",
    "SVM migration, CRIU, DBG_TRAP, PROC_OPTIONS, PROFILER": "only sketched in the description",
}


def counts() -> tuple[int, int]:
    """Covered, and all that are named."""
    return len(CHECKS), len(CHECKS) + len(NOT_EMULATED)
