"""What each test needs, which tests stay on one worker, and those that `make quick` and `make test` run.

Marks follow from a test's folder, file and fixtures, so that no test needs to name its own. `pytest --quick` leaves out
what is marked as `LEFT_OUT` says, thins the cases of a function, and counts the functions of each room that are left:
too few of them are a failure. The long proofs of `LONG` run whole in `make soak`, and in small, or not at all where
another test stands for them, in `make test`.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import hypothesis
import pytest
from hypothesis.database import DirectoryBasedExampleDatabase

TESTS: Final = Path(__file__).resolve().parent


class Less(NamedTuple):
    """What is left of a long proof outside `make soak`, and why that is enough."""

    kept: int
    """Cases of the function, or examples of its property."""
    why: str


OF_PATHS: Final = {
    "bench/": "bench",
    "bench/test_cql_spark_bench.py": "spark",
    "bench/test_stream_memory_bench.py": "spark",
    "bench/test_wo_join_bench.py": "spark",
    "browser/": "browser",
    "end_to_end/test_continuous_queries.py": "slow",
    "hypergrid/archive/test_s3.py": "s3",
    "ingest/sources/test_receiver.py": "process",
    "ingest/spark/": "spark",
    "ingest/test_tap_kill.py": "process",
    "queries/standing/test_served_rows.py": "process",
    "ingest/test_s3.py": "s3",
}
"""Marks of folders and of files."""
OF_FIXTURES: Final = {"spark": "spark", "s3": "s3", "broker": "broker", "chromium": "browser"}
"""Marks of fixtures: of all tests that use them, also through others."""
OF_FUNCTIONS: Final[dict[str, dict[str, Sequence[str]]]] = {
    "process": {
        "end_to_end/test_command_line.py": ("test_a_process_of_its_own_ends_with_the_same_status",),
        "end_to_end/test_readme.py": ("test_commands_of_the_command_line_work",),
        "end_to_end/test_wheel.py": (
            "test_the_command_says_that_benchmarks_need_a_checkout",
            "test_the_demo_its_query_and_its_files_are_made_without_the_checkout",
            "test_files_are_read_on_spark_without_the_checkout",
            "test_a_watched_folder_is_read_on_spark_without_the_checkout",
            "test_the_server_and_its_client_work_without_the_checkout",
            "test_a_small_network_needs_neither_spark_nor_java",
        ),
        "hypergrid/archive/test_care.py": (
            "test_maintenance_that_is_killed_harms_nothing",
            "test_readers_read_while_an_archive_is_maintained",
        ),
        "hypergrid/archive/test_processes.py": (
            "test_no_commit_from_4_processes_is_lost",
            "test_a_killed_committer_leaves_whole_batches_and_the_next_run_continues",
        ),
        "ingest/test_bad_files.py": ("test_memory_is_bounded",),
        "ingest/test_kill.py": ("test_ten_random_moments", "test_on_spark", "test_in_an_s3_store"),
        "ingest/test_random_kills.py": ("test_some_kills",),
        "ingest/reprocess/test_reprocess.py": ("test_killed_anywhere_it_ends_in_the_same_flags",),
        "ingest/test_stream.py": ("test_messages_of_a_broker_become_the_archive_of_a_batch_ingest",),
        "ingest/test_stream_kill.py": ("test_kills_of_python_of_spark_and_of_both",),
        "hypergrid/continuous/live/test_live_query.py": ("test_kills_lose_and_repeat_nothing",),
        "queries/standing/test_kill.py": (
            "test_three_kills_of_the_server",
            "test_kills_of_the_server_lose_and_repeat_nothing_of_a_kept_query",
        ),
        "queries/web/test_description.py": ("test_the_description_is_true",),
        "queries/web/test_operations.py": ("test_a_server_that_ends_while_ten_queries_run_leaves_their_states_known",),
    },
    "slow": {
        "queries/web/routes/test_continuous_kept.py": ("test_a_stream_of_events_goes_on_after_an_error",),
        "ingest/streaming/test_spilled_rows.py": ("test_a_limited_stream_gives_the_archive_of_a_batch_ingest",),
        "ingest/streaming/test_saved_state.py": ("test_a_stream_with_states_in_files_is_the_same",),
        "queries/standing/test_row_alerts.py": ("test_a_long_stretch_is_evaluated_in_pieces",),
        "end_to_end/test_checks_and_slips.py": ("test_the_whole_way_is_shown_once",),
        "end_to_end/test_continuous_real_data.py": (
            "test_examples_that_are_offered_run_or_say_which_stations_are_missing",
            "test_the_pass_has_three_thermometers_that_leave_their_neighbours",
        ),
        "end_to_end/test_emptied_files.py": ("test_a_file_of_each_kind_emptied_is_named_and_read_by_nobody",),
        "end_to_end/test_docs.py": (
            "test_the_code_of_a_page_runs_as_printed",
            "test_a_block_that_fails_is_named",
        ),
        "end_to_end/test_docs_site.py": (
            "test_the_site_is_whole_and_asks_no_other_host",
            "test_search_finds",
            "test_search_works_in_a_browser_under_the_policy",
            "test_the_server_shows_it_under_a_policy_that_names_its_scripts",
            "test_a_build_that_fails_leaves_the_site_of_before",
        ),
        "end_to_end/test_elevation.py": (
            "test_three_levels_are_three_maps_over_plains_of_their_heights",
            "test_bands_are_the_means_of_their_stations",
        ),
        "end_to_end/test_foreign_networks.py": ("test_maps_are_nearly_as_good_as_kriging_with_the_true_covariance",),
        "end_to_end/test_readme.py": ("test_commands_of_the_folders_work_as_printed",),
        "end_to_end/test_real_data.py": ("test_every_reading_of_every_column_is_in_the_archive",),
        "end_to_end/test_sample_network.py": ("test_pykrige_agrees_with_the_reference_queries",),
        "hypergrid/archive/test_pool.py": ("test_steps_of_one_commit_read_and_store_as_commits_of_their_own",),
        "hypergrid/execution/test_area_weights.py": (
            "test_results_go_to_files_with_names_places_and_areas",
            "test_zones_that_tile_a_grid_add_up_to_it",
        ),
        "hypergrid/execution/test_civil_totals.py": (
            "test_a_day_that_is_missing_is_missed_where_the_clock_is_put_forward",
            "test_one_more_reading_changes_the_days_around_it_alone",
            "test_totals_that_overlap_by_little_are_not_summed",
        ),
        "hypergrid/execution/test_mean_errors.py": (
            "test_simulated_fields_scatter_as_the_variance_says",
            "test_an_estimated_correlation_is_used_where_it_can_be_trusted_and_told",
            "test_every_correlation_time_lies_within_the_bracket",
        ),
        "hypergrid/execution/test_memory.py": (
            "test_memory_is_used_again_when_the_last_view_is_gone",
            "test_threads_never_share_a_piece",
            "test_what_is_kept_is_bounded_and_the_oldest_goes",
            "test_only_memory_of_the_same_size_is_taken",
        ),
        "hypergrid/execution/test_orders.py": (
            "test_estimates_are_exact_where_computed_and_finite_elsewhere",
            "test_errors_of_estimates_are_what_they_say",
            "test_pictures_of_large_maps_are_fast",
        ),
        "hypergrid/execution/test_overlapping.py": (
            "test_running_totals_that_were_interpolated_are_not_summed",
            "test_every_way_answers_as_the_oracle",
        ),
        "hypergrid/execution/test_pieces.py": (
            "test_pieces_give_what_all_readings_give",
            "test_intervals_that_overlap_are_taken_alike",
        ),
        "hypergrid/execution/test_plan.py": (
            "test_the_peak_stays_below_the_projection",
            "test_an_archives_peak_stays_below_the_projection",
        ),
        "hypergrid/execution/test_remedies.py": ("test_a_refusal_names_the_step_and_what_lowers_it",),
        "hypergrid/execution/test_strategies.py": ("test_every_strategy_gives_the_same_surface",),
        "hypergrid/execution/test_walk.py": (
            "test_equal_seeds_walk_alike",
            "test_every_cell_is_served_once",
        ),
        "hypergrid/interpolation/test_coverage.py": (
            "test_intervals_of_means_over_time_hold_the_truth",
            "test_intervals_hold_the_truth_with_the_correlation_estimated",
        ),
        "hypergrid/interpolation/test_kernels.py": ("test_a_small_job_loads_no_compiler",),
        "hypergrid/interpolation/test_local.py": ("test_many_masks_chunks_and_sets_do_not_change_an_estimate",),
        "hypergrid/interpolation/test_simulate.py": (
            "test_realisations_scatter_around_the_estimate_as_its_variance_says",
        ),
        "hypergrid/interpolation/test_validate.py": (
            "test_methods_are_compared_on_the_values_that_all_of_them_estimate",
        ),
        "hypergrid/perspective/test_climatology.py": ("test_every_strategy_box_and_order_gives_the_same",),
        "hypergrid/perspective/test_fuzz.py": (
            "test_any_value_anywhere_gives_a_plan_or_a_refusal",
            "test_any_json_is_read_or_refused",
            "test_a_question_comes_back_from_its_json",
        ),
        "hypergrid/perspective/test_time_cells.py": (
            "test_cells_that_come_again_hold_what_the_wall_clock_says",
            "test_cells_hold_what_the_calendar_says",
        ),
        "hypergrid/perspective/test_user_functions.py": ("test_over_time_and_space_is_what_numpy_makes_of_all_values",),
        "hypergrid/plots/test_plot.py": ("test_the_module_loads_without_matplotlib",),
        "hypergrid/archive/test_as_of.py": (
            "test_as_of_is_the_archive_that_got_only_what_had_arrived",
            "test_a_query_answers_as_one_would_have_then",
        ),
        "hypergrid/archive/test_care.py": (
            "test_files_stay_bounded_and_readings_stay",
            "test_what_was_committed_is_forced_to_the_disk",
            "test_care_that_fails_is_told_and_tried_again_later",
        ),
        "hypergrid/archive/test_backup.py": (
            "test_backups_during_commits_restore_whole",
            "test_a_backup_that_is_killed_leaves_the_former_one_and_no_branch_for_long",
        ),
        "hypergrid/archive/test_checksums.py": (
            "test_a_flipped_bit_is_never_a_reading",
            "test_files_that_were_emptied_are_errors_and_named",
            "test_readings_beside_slices_that_are_damaged_are_told_by_their_times",
        ),
        "hypergrid/archive/test_flags.py": ("test_flags_are_those_of_a_dictionary",),
        "hypergrid/archive/test_processes.py": (
            "test_nothing_is_printed",
            "test_a_creation_that_was_killed_leaves_nothing_in_the_way",
        ),
        "hypergrid/archive/test_properties.py": ("test_the_archive_holds_what_a_dictionary_holds",),
        "hypergrid/archive/test_repair.py": (
            "test_plain_copies_made_during_commits_are_brought_to_a_whole_snapshot",
            "test_each_file_that_is_emptied_is_mended_or_told",
            "test_a_spare_that_is_damaged_is_named_and_written_anew",
        ),
        "hypergrid/archive/test_side_table.py": ("test_a_window_reads_what_lies_in_it",),
        "hypergrid/archive/test_threads.py": ("test_threads_store_what_one_after_the_other_does",),
        "hypergrid/archive/test_upgrade.py": (
            "test_an_upgrade_that_is_killed_is_gone_on_with",
            "test_an_upgrade_that_ends_between_two_steps_is_gone_on_with",
            "test_an_upgrade_changes_no_answer_and_keeps_what_was_cited",
            "test_chunks_of_the_former_layout_are_compared_with_what_they_were",
        ),
        "hypergrid/wo_join/test_bad_input.py": ("test_keys_that_never_grow_are_told",),
        "hypergrid/wo_join/test_generator.py": ("test_settings_of_table_5_4",),
        "hypergrid/wo_join/test_join.py": (
            "test_cutting_into_pushes_changes_nothing",
            "test_whole_slices_are_closed_with_their_last_tuple",
            "test_keys_that_all_have_brought_are_dropped_at_once",
            "test_with_known_parameters_each_result_comes_once",
        ),
        "hypergrid/wo_join/test_monitors.py": ("test_the_dependent_factor_is_that_of_the_sorted_stream",),
        "hypergrid/wo_join/test_optimum.py": ("test_millions_of_tuples_take_seconds",),
        "hypergrid/wo_join/test_spilling.py": (
            "test_a_full_disk_is_told_and_nothing_is_lost",
            "test_a_killed_process_loses_nothing",
            "test_results_wait_for_the_sort_and_not_for_the_disk",
            "test_a_process_grows_no_further_than_the_limit",
            "test_each_result_comes_once_under_every_limit_that_admits_it",
            "test_a_join_that_is_full_has_lost_nothing",
            "test_leading_streams_are_on_disk_until_they_are_needed",
            "test_sorting_goes_down_to_what_the_scrambling_factor_allows",
            "test_segments_of_a_snapshot_stay_until_the_next",
            "test_a_restart_from_a_snapshot_gives_what_would_have_come",
        ),
        "hypergrid/test_again.py": (
            "test_what_is_computed_again_is_identical",
            "test_what_does_not_fit_in_memory_is_computed_into_a_store",
            "test_the_command_line_confirms_and_finds_what_was_changed",
            "test_a_result_is_computed_again_at_its_own_snapshot",
        ),
        "hypergrid/test_again_expired.py": (
            "test_what_the_command_line_writes_is_computed_again_after_its_snapshot_would_have_expired",
            "test_what_nobody_cited_is_answered_as_of_the_commit",
            "test_snapshots_that_results_cite_are_bounded_and_those_cited_by_hand_are_not",
            "test_who_may_not_write_is_told_and_answered_as_of_the_commit",
            "test_python_users_keep_a_snapshot_by_citing_it",
        ),
        "hypergrid/test_against_oracle.py": (
            "test_the_questions_meet_every_operator_and_every_kind_of_cells",
            "test_an_archive_answers_as_the_oracle",
            "test_an_array_answers_as_the_oracle",
            "test_every_kind_of_time_cells_answers_as_the_oracle",
        ),
        "hypergrid/formats/test_export.py": ("test_a_failure_leaves_the_old_file_and_nothing_else",),
        "hypergrid/analysis/test_growing.py": (
            "test_updates_equal_computing_anew",
            "test_what_is_told_of_heights_reach_and_readings_is_of_the_whole_surface",
            "test_a_variance_whose_correlation_is_found_from_all_slices_is_computed_anew",
        ),
        "hypergrid/formats/test_in_parts.py": (
            "test_pieces_give_what_the_whole_gives",
            "test_a_piece_is_data_and_what_was_written_or_refused",
        ),
        "hypergrid/test_interpolate_in_time.py": (
            "test_an_archive_answers_as_the_oracle",
            "test_an_array_answers_as_the_oracle",
        ),
        "hypergrid/formats/test_reading_files.py": (
            "test_netcdf_is_read_back_as_it_was",
            "test_a_table_is_read_back_as_it_was",
        ),
        "hypergrid/test_readme.py": (
            "test_the_plan_of_q1_is_the_one_that_the_readme_shows",
            "test_q1_enters_the_files_in_the_order_of_the_readme",
        ),
        "hypergrid/test_start.py": (
            "test_what_takes_long_to_load_waits_until_it_is_used",
            "test_a_worker_of_a_stream_loads_neither_units_nor_what_only_queries_and_netcdf_need",
            "test_the_first_small_map_loads_no_search_trees",
        ),
        "hypergrid/analysis/test_study.py": (
            "test_a_validation_is_told_in_a_few_lines",
            "test_a_comparison_says_what_it_is_scored_on",
            "test_kriging_with_its_own_variogram_beats_the_nearest_station",
        ),
        "hypergrid/test_to_zarr.py": (
            "test_what_is_larger_than_what_is_allowed_is_written_in_parts",
            "test_a_store_is_what_compute_gives",
        ),
        "ingest/formats/test_dialects.py": ("test_a_table_reads_back_equal",),
        "ingest/importing/test_importer.py": (
            "test_a_killed_import_loses_and_repeats_nothing",
            "test_a_run_outlives_its_server_and_one_runs_at_a_time",
            "test_a_plain_table_is_described_ingested_corrected_and_ingested_again",
            "test_a_question_is_answered_by_a_feed",
            "test_a_run_that_takes_too_long_ends",
        ),
        "ingest/sources/test_spool.py": (
            "test_a_killed_writer_loses_nothing_that_it_acknowledged",
            "test_a_torn_end_is_cut_at_every_byte",
        ),
        "ingest/test_bad_files.py": ("test_strict_ends_with_a_message_and_status_1",),
        "ingest/test_interval_batches.py": ("test_the_pieces_in_which_readings_come_change_no_flag",),
        "ingest/test_job.py": (
            "test_an_interruption_leaves_the_archive_as_it_was",
            "test_lines_of_rejects_count_from_the_start_of_the_file",
            "test_small_pieces_make_the_same_archive",
            "test_strict_refuses_any_reject_and_commits_nothing",
            "test_small_inputs_start_no_spark",
            "test_without_java_large_inputs_are_refused_with_the_ways_out",
            "test_another_network_does_not_mix_in",
            "test_what_gave_nothing_is_tried_again_when_it_is_mapped",
            "test_a_deployment_without_coordinates_takes_no_position_away",
            "test_a_file_that_grew_adds_its_new_rows",
            "test_bad_files_become_rejects_and_the_rest_is_ingested",
            "test_a_position_that_is_known_survives_files_without_deployment",
            "test_files_of_one_name_from_two_folders_are_told_apart",
        ),
        "ingest/quality/test_judging.py": (
            "test_pieces_have_the_flags_of_the_whole",
            "test_pieces_of_counters_that_fall_have_the_flags_of_the_whole",
        ),
        "ingest/quality/test_nearby.py": (
            "test_minutes_have_the_flags_of_the_whole",
            "test_old_stamps_beside_new_ones_have_the_flags_of_the_whole",
            "test_a_station_that_sends_all_it_kept_is_judged_piece_by_piece",
            "test_a_broken_sensor_costs_no_more",
        ),
        "ingest/test_running_totals.py": (
            "test_daily_sums_are_those_of_totals_that_do_not_overlap",
            "test_hours_add_up_to_the_longer_totals_of_the_same_time",
        ),
        "ingest/test_publication.py": ("test_another_statement_needs_no_new_reading",),
        "ingest/test_real_data.py": ("test_every_reading_of_every_column_is_in_the_archive",),
        "ingest/sources/test_arrival_replay.py": ("test_the_archive_is_that_of_an_ingest",),
        "ingest/reprocess/test_remap.py": (
            "test_series_that_were_withdrawn_before_are_listed_no_more",
            "test_stations_and_rejects_that_hold_no_more_are_not_listed",
            "test_a_unit_that_was_wrong",
            "test_a_zone_that_was_wrong",
            "test_once_more_changes_nothing",
        ),
        "ingest/quality/test_remembered.py": ("test_pieces_have_the_flags_of_the_whole",),
        "ingest/reprocess/test_reprocess.py": (
            "test_surfaces_go_on_where_they_were",
            "test_it_gives_the_flags_of_quality",
            "test_a_station_that_moved_meanwhile_is_judged_where_it_stands",
            "test_what_is_committed_meanwhile_stays_and_is_judged",
            "test_counters_that_fall_are_judged_as_by_quality",
            "test_a_second_start_goes_on",
            "test_a_run_can_be_abandoned",
            "test_stations_that_no_neighbours_test_are_counted",
            "test_the_same_parameters_change_nothing",
            "test_some_variables_and_some_time",
        ),
        "ingest/reprocess/test_requality.py": (
            "test_a_clock_is_told_and_corrected_only_when_told",
            "test_the_same_tests_once_more_change_nothing",
            "test_other_parameters_are_another_snapshot_of_the_same_values",
            "test_an_ingest_tells_what_it_found",
            "test_the_command_line_shows_before_and_after",
            "test_one_variable_alone",
        ),
        "ingest/test_shared_data.py": (
            "test_netcdf",
            "test_smet",
            "test_toa5",
            "test_climaps",
        ),
        "ingest/streaming/test_anew.py": (
            "test_a_note_that_is_damaged_is_made_again",
            "test_a_raw_copy_that_is_gone_or_damaged_is_told_and_the_rest_goes_on",
            "test_memory_that_is_lost_twice",
            "test_numbers_that_are_given_twice_are_not_taken_for_what_was_committed",
            "test_what_waited_is_stored_beside_what_a_file_said_meanwhile",
            "test_what_was_amended_since_and_what_was_refused_stay_as_they_are",
            "test_whenever_its_memory_is_lost_the_archive_is_that_of_a_batch_ingest",
            "test_a_spool_that_ends_before_what_waited_is_completed_or_told",
        ),
        "ingest/streaming/test_spooled.py": ("test_whole_files_are_read_as_a_batch_ingest_does",),
        "ingest/streaming/test_streamed.py": (
            "test_the_archive_is_that_of_a_batch_ingest",
            "test_a_batch_that_comes_again_changes_nothing",
            "test_a_segment_goes_once_the_commit_that_used_it_is_on_the_disk",
            "test_duplicates_replacements_rejects_and_late_rows_are_accounted_for",
        ),
        "ingest/batch/test_target.py": (
            "test_who_waited_for_a_run_that_took_its_archive_away_makes_one",
            "test_a_second_run_waits_and_says_so_once",
        ),
        "ingest/batch/test_telling.py": (
            "test_the_example_for_knmi_says_that_stamps_are_ends",
            "test_a_station_that_files_tell_elsewhere_has_moved",
        ),
        "ingest/repair/test_restoring.py": (
            "test_a_bit_flipped_in_any_file_but_a_chunk_of_readings_costs_nothing",
            "test_a_later_file_still_amends_what_a_stream_brought_before",
            "test_a_table_is_that_of_the_snapshot_before_and_a_layer_is_told",
            "test_a_stream_whose_commits_are_gone_begins_anew",
            "test_commits_that_cannot_be_told_any_more_are_done_again",
            "test_every_value_that_a_raw_copy_has_comes_back",
            "test_what_streams_brought_comes_back",
            "test_chunks_that_are_gone_come_back_and_cost_no_later_commit",
            "test_a_repair_that_is_killed_is_gone_on_with",
            "test_what_streams_brought_comes_back_though_all_chunks_are_damaged",
            "test_one_damaged_raw_copy_costs_no_more_than_itself",
            "test_what_is_gone_is_listed_by_series_and_time",
            "test_a_deployment_of_a_stream_that_lost_a_bit_is_read_from_its_spare",
            "test_what_no_raw_copy_has_is_counted",
        ),
        "ingest/repair/test_upgrading.py": (
            "test_no_flipped_bit_gives_an_upgraded_archive_another_value",
            "test_a_value_that_lost_a_bit_is_refused_and_comes_back",
            "test_the_command_upgrades_and_stores_what_raw_copies_say",
            "test_arrivals_that_are_others_are_counted",
        ),
        "ingest/repair/test_verifying.py": (
            "test_a_stream_is_compared_as_far_as_none_of_its_rows_wait",
            "test_each_run_is_read_by_the_shift_of_clocks_that_held_then",
            "test_values_that_are_others_are_named_and_put_right",
            "test_every_reading_of_files_that_amend_one_another_is_found",
            "test_only_what_is_lost_is_stored",
            "test_the_command_says_how_much_was_compared_and_what_is_lost",
            "test_segments_that_cannot_be_read_are_told_by_status",
        ),
        "queries/standing/test_commands.py": ("test_a_test_alert_and_those_that_do_not_arrive_are_shown",),
        "queries/standing/test_delivery.py": (
            "test_hosts_that_drip_hold_up_nobody",
            "test_a_webhook_that_hangs_or_redirects_holds_up_nobody",
            "test_what_is_refused_for_itself_holds_up_no_other",
            "test_letters_go_on_after_a_full_disk",
        ),
        "queries/standing/test_following.py": (
            "test_what_is_found_bit_by_bit_is_what_one_look_finds",
            "test_a_stamp_far_ahead_silences_nobody",
            "test_a_selected_station_that_falls_silent_is_missed_by_what_others_bring",
        ),
        "queries/standing/test_runner.py": (
            "test_episodes_are_those_of_the_surface_whatever_the_order",
            "test_results_in_the_archive_outlive_stations_that_come",
            "test_a_moving_window_ends_with_the_newest_slice",
            "test_an_alert_is_raised_once_cleared_by_hysteresis_and_says_what_it_saw",
            "test_a_full_disk_is_told_and_nothing_is_lost_by_it",
        ),
        "queries/standing/test_silence.py": (
            "test_a_standing_query_tells_the_sample_networks_deaths",
            "test_the_sample_networks_deaths_and_nothing_else",
            "test_a_query_tells_who_is_dead_already_and_nothing_of_long_ago",
            "test_a_dead_station_is_told_with_its_interval_and_a_sensor_that_fails_is_not",
        ),
        "queries/standing/test_turns.py": (
            "test_a_query_that_failed_once_gets_its_share_all_the_same",
            "test_the_longest_waiting_query_gets_its_share_within_the_bound",
            "test_what_takes_longer_than_a_slice_ends_all_the_same",
            "test_who_asks_for_figures_disturbs_no_strategy",
            "test_where_all_is_fresh_all_tokens_were_earned",
        ),
        "queries/snapshots/test_extents.py": (
            "test_random_commits_with_flags_that_are_judged_anew",
            "test_commits_of_every_kind_and_older_snapshots",
        ),
        "queries/snapshots/test_latest.py": (
            "test_random_commits",
            "test_late_new_replaced_and_missing_readings",
        ),
        "queries/test_damaged_state.py": (
            "test_no_flipped_bit_is_read_as_something_else",
            "test_lines_of_an_older_program_are_accepted",
            "test_a_server_answers_without_its_file_of_jobs_and_says_so",
        ),
        "queries/web/edr/test_large.py": (
            "test_owslib_lists_every_station",
            "test_pages_lead_to_every_station",
        ),
        "queries/web/edr/test_metadata.py": ("test_the_api_is_described",),
        "queries/web/edr/test_odd_words.py": ("test_edr_never_breaks",),
        "queries/web/edr/test_serving.py": (
            "test_answers_take_no_place_among_results_that_are_kept",
            "test_the_judge_of_cf_finds_no_error",
        ),
        "queries/web/auth/test_access.py": (
            "test_every_route_by_every_caller",
            "test_the_id_of_a_request_is_echoed_where_it_is_one",
            "test_the_files_of_a_page_are_not_counted",
        ),
        "queries/web/test_damage.py": (
            "test_damage_to_a_running_server",
            "test_data_are_read_while_another_process_holds_state",
        ),
        "queries/web/test_hardness.py": (
            "test_changed_queries_are_answered_or_refused",
            "test_grids_without_measure",
            "test_cells_of_time_that_cannot_be",
            "test_paths_that_lead_elsewhere",
            "test_400_idle_streams_leave_health_and_metrics_answered",
            "test_many_half_open_connections_keep_nobody_out",
            "test_one_address_cannot_take_all_connections",
            "test_heads_that_are_none",
            "test_a_body_that_comes_too_slowly_is_refused",
            "test_a_connection_that_says_nothing_or_little_is_closed",
        ),
        "queries/web/test_logged_errors.py": ("test_an_answer_that_breaks_off_has_one_record_too",),
        "queries/web/test_memory.py": ("test_memory_is_given_back_after_large_and_refused_requests",),
        "queries/web/test_operations.py": ("test_a_client_cannot_make_metrics_grow",),
        "queries/web/routes/test_readings.py": (
            "test_the_judges_of_cf_and_acdd_find_no_error",
            "test_bad_words_are_told",
            "test_latest_values_after_commits_are_those_of_a_server_that_starts_then",
        ),
        "queries/web/routes/test_results.py": ("test_the_same_is_not_sent_again",),
        "queries/web/test_server.py": ("test_a_signal_cancels_what_runs_and_ends_the_server",),
        "queries/web/routes/test_standing.py": (
            "test_alerts_come_as_events_and_go_on_after_the_last_one_seen",
            "test_a_standing_query_is_replaced",
        ),
        "station_data/test_arrivals.py": ("test_each_reading_has_one_arrival_in_order",),
        "test_selection.py": ("test_long_proofs_are_short_but_in_the_soak",),
        "test_setup.py": ("test_a_forbidden_skip_is_a_failure",),
        "end_to_end/test_recipes.py": ("test_a_written_recipe_comes_near_the_truth",),
        "hypergrid/interpolation/test_tiled_cholesky.py": ("test_factor_solutions_and_inverse_are_those_of_numpy",),
        "hypergrid/interpolation/test_automatic.py": ("test_close_to_kriging_with_the_true_variogram",),
        "hypergrid/analysis/test_suggestion.py": ("test_a_map_is_carried_over_to_every_variable",),
        "queries/web/edr/test_positions.py": ("test_each_position_is_the_cell_of_which_it_is_the_centre",),
        "queries/jobs/test_runner.py": ("test_what_does_not_fit_in_memory_waits_and_small_queries_do_not_wait_for_it",),
        "queries/web/test_full_disk.py": ("test_a_disk_without_a_free_byte",),
        "queries/web/test_ranges.py": (
            "test_what_bears_a_tag_is_the_same_byte_for_byte",
            "test_a_large_file_is_written_once_for_all_its_parts",
            "test_rasterio_reads_a_window_without_the_whole",
        ),
        "queries/web/responses/test_ties.py": ("test_the_last_follower_takes_the_job_along",),
        "queries/web/test_readiness.py": (
            "test_a_disk_that_hangs_is_told_once_and_then_at_once",
            "test_asking_often_is_cheap",
        ),
        "queries/test_backup_commands.py": ("test_state_is_consistent_while_a_server_writes",),
        "queries/web/test_choosing.py": (
            "test_each_answers_with_what_is_chosen",
            "test_other_boxes_have_other_tags",
        ),
        "hypergrid/cli/test_archive_commands.py": ("test_check_mends_what_is_damaged_and_says_what",),
        "hypergrid/test_auto_in_queries.py": ("test_json_needs_no_method_and_the_answer_can_be_had_again",),
    },
}
"""Marks of single functions: of those of a file, by mark."""
LONG: Final[dict[str, dict[str, Less]]] = {
    "bench/test_cql_spark_bench.py": {
        "test_each_way_writes_the_same_file": Less(
            0, "a benchmark in small, on Spark; ingest/spark/test_backtest.py compares files with those of one process"
        ),
    },
    "bench/test_scale_bench.py": {
        "test_queries_take_what_is_projected": Less(
            0, "a benchmark in small; hypergrid/execution/test_plan.py has peaks below what is projected"
        ),
    },
    "bench/test_standing_bench.py": {
        "test_strategies_meet_the_same_live_load_and_stand_in_one_table": Less(
            0, "a benchmark in small; queries/scheduling/test_strategies.py has what they choose"
        ),
    },
    "bench/test_archive_year_bench.py": {
        "test_a_very_short_year_is_measured": Less(0, "a benchmark in small"),
    },
    "bench/test_cold_start_bench.py": {
        "test_a_server_that_has_just_started_answers_every_request": Less(
            0, "a benchmark in small; queries/web/test_server.py starts servers"
        ),
    },
    "bench/test_cql_bench.py": {
        "test_spark_gives_the_engines_rows": Less(
            0, "a peer of a benchmark, which compares its rows before it takes its times"
        ),
    },
    "bench/test_hypergrid_bench.py": dict.fromkeys(
        (
            "test_a_slice_more_touches_the_windows_that_hold_it",
            "test_both_sides_of_each_figure_agree",
            "test_each_rule_that_fires_is_measured_by_itself",
            "test_every_figure_says_what_it_is_and_whether_its_goal_is_met",
            "test_fused_queries_have_the_same_bits_a_time_and_a_peak",
            "test_what_is_kept_from_box_to_box_is_measured_apart",
            "test_tables_have_a_row_a_figure",
            "test_the_walk_is_judged_beside_other_orders_of_as_many_cells",
        ),
        Less(0, "of a benchmark in small; both sides have oracles of their own"),
    ),
    "bench/test_ingest_bench.py": {
        "test_few_values_are_measured": Less(0, "a benchmark in small"),
    },
    "bench/test_hypergrid_strategies.py": dict.fromkeys(
        (
            "test_every_strategy_gives_the_same_surface",
            "test_the_chosen_k_has_a_goal",
            "test_every_k_has_its_total_and_its_mean_response",
            "test_each_k_is_timed_or_the_same_run_as_a_timed_one",
        ),
        Less(0, "of a benchmark in small; hypergrid/execution/test_strategies.py compares the surfaces"),
    ),
    "bench/test_kriging_bench.py": dict.fromkeys(
        (
            "test_every_figure_has_its_goal_and_says_what_it_was_extrapolated_from",
            "test_tables_have_a_row_a_figure",
        ),
        Less(0, "of a benchmark in small; both sides are compared with PyKrige elsewhere"),
    ),
    "bench/test_memory.py": {
        "test_a_query_takes_what_its_plan_projects": Less(
            2, "two plans of four; hypergrid/execution/test_plan.py has others"
        ),
    },
    "bench/test_orders_bench.py": {
        **dict.fromkeys(
            (
                "test_days_by_hours_are_told_best_by_the_walk",
                "test_maps_are_told_best_coarse_to_fine_and_worst_row_by_row",
                "test_nothing_is_off_where_all_is_computed",
                "test_tables_and_the_plot_have_all_pictures",
                "test_the_default_of_engine_server_and_page_is_the_order_with_the_smallest_errors",
            ),
            Less(
                0, "of a choice that was made once, over six pictures; hypergrid/execution/test_orders.py judges errors"
            ),
        ),
        "test_what_is_judged_is_what_the_engine_shows": Less(2, "orders and pictures of six, the first and the last"),
    },
    "bench/test_pages_bench.py": {
        "test_a_board_follows_and_keeps_no_figures": Less(
            0, "a benchmark in small; browser/test_boards.py has panels that follow new readings in place"
        ),
        "test_pages_of_many_stations_are_opened_until_they_answer": Less(
            0,
            "a benchmark in small; each page is opened by tests of its own, and browser/test_stations.py has many rows",
        ),
        "test_pages_that_are_left_open_complain_of_nothing_and_keep_no_figures": Less(
            0, "browser/test_explore.py looks for figures that are kept after three questions"
        ),
        "test_the_first_picture_and_how_it_sharpens": Less(
            0, "a benchmark in small; browser/test_views.py counts redraws"
        ),
        "test_the_first_map_is_timed_until_it_is_whole": Less(
            0, "a benchmark in small, with servers of its own; browser/test_picture_first.py opens the page"
        ),
        "test_the_overview_is_timed_on_warm_and_cold_servers_and_weighed": Less(
            0, "a benchmark in small, with servers of its own; browser/test_overview.py opens the page"
        ),
    },
    "bench/test_reprocess_bench.py": {
        "test_a_short_archive_is_reprocessed": Less(
            0,
            "it starts Spark five times; killed reprocessing is in ingest/reprocess/test_reprocess.py, Spark's "
            "in ingest/spark",
        ),
    },
    "bench/test_scheduling_bench.py": dict.fromkeys(
        (
            "test_every_figure_is_there_with_every_strategy",
            "test_each_shape_is_a_record",
            "test_tables_show_it",
            "test_the_linear_programme_is_never_beaten_and_horn_never_short",
        ),
        Less(0, "of a benchmark in small"),
    ),
    "bench/test_stream_memory_bench.py": {
        "test_a_limit_changes_nothing_but_the_memory": Less(
            0,
            "a benchmark in small, which starts Spark three times; ingest/streaming/test_spilled_rows.py compares "
            "limited streams with others, and with a batch ingest",
        ),
    },
    "bench/test_tasks_bench.py": {
        "test_both_sides_answer": Less(1, "task of ten, the first"),
    },
    "bench/test_walk_pictures.py": dict.fromkeys(
        (
            "test_a_picture_is_told_by_15_percent_of_the_cells",
            "test_other_walks_tell_the_events_as_well",
            "test_radiation_during_the_rain_is_below_that_of_the_days_beside",
        ),
        Less(0, "of a picture of the READMEs, drawn in small; bench/test_walk_quality.py judges walks"),
    ),
    "bench/test_watermark_bench.py": {
        "test_what_spark_holds_until_as_many_slices_are_whole": Less(0, "a benchmark in small, on Spark"),
    },
    "bench/test_web_bench.py": {
        "test_it_measures_what_it_says": Less(
            0, "a benchmark in small: 200 requests a second need a machine of their own"
        ),
    },
    "bench/test_web_fair_bench.py": {
        "test_a_stream_goes_on_beside_large_queries": Less(0, "a benchmark in small, on Spark, beside a server"),
        "test_the_large_queries_run_and_alerts_are_followed": Less(0, "a benchmark in small: it takes minutes"),
    },
    "bench/test_wo_join_bench.py": dict.fromkeys(
        (
            "test_a_course_has_all_its_curves",
            "test_both_orders_stand_beside_every_contrast",
            "test_both_sides_of_each_figure_agree",
            "test_every_setting_of_table_5_4_has_its_goal",
            "test_known_parameters_give_all_results",
            "test_shapes_of_the_figures_are_judged_by_what_was_measured",
            "test_strategies_give_what_is_given_without",
            "test_the_document_and_the_tables",
            "test_windows_of_equal_accuracy_hold_more_than_the_optimum",
        ),
        Less(0, "of a benchmark in small, on Spark; hypergrid/wo_join has the oracles"),
    ),
    "browser/test_boards.py": {
        "test_a_board_fits_a_narrow_window": Less(1, "the narrower of two"),
        "test_a_wall_fills_the_window_until_escape": Less(1, "in one scheme of two"),
    },
    "browser/test_brush.py": {
        "test_axe_finds_nothing_serious": Less(1, "in one scheme of two"),
    },
    "browser/test_foreign_path.py": {
        "test_a_map_its_files_and_an_alert_are_ten_actions_away": Less(
            1, "network, that of the plain; three in the soak"
        ),
    },
    "browser/test_frame.py": {
        "test_axe_finds_nothing_serious": Less(
            1, "in one scheme of two; contrasts of both are computed from the colours"
        ),
        "test_every_page_fits_every_window": Less(2, "the narrowest window and the widest"),
    },
    "browser/test_import.py": {
        "test_networks_of_strangers_are_imported_as_they_are": Less(1, "network, that of the plain; three in the soak"),
        "test_a_plain_table_becomes_a_picture": Less(1, "by keyboard; networks of strangers are imported by mouse"),
    },
    "browser/test_tasks_in_firefox.py": dict.fromkeys(
        (
            "test_a_cells_series_has_its_uncertainty",
            "test_a_map_is_two_actions_away",
            "test_a_region_is_moved_to",
            "test_an_alert_is_made",
            "test_another_variable_is_a_choice",
            "test_ones_own_table_becomes_a_map",
            "test_picture_and_values_are_saved",
            "test_two_periods_are_compared",
        ),
        Less(1, "by mouse; browser/test_tasks.py does the same by all ways in Chromium"),
    ),
    "browser/test_variogram.py": {
        "test_axe_finds_nothing_serious": Less(1, "in one scheme of two"),
    },
    "end_to_end/test_continuous_queries.py": dict.fromkeys(
        (
            "test_drift_as_the_specification_writes_it_is_also_the_cold_air_of_hollows",
            "test_frost_is_warned_of_before_it_comes",
            "test_gateways_that_fail_are_those_planted_and_nothing_else",
            "test_heavy_rain_is_that_of_the_three_events",
            "test_silences_are_those_planted_and_nothing_else",
            "test_stuck_sensors_are_those_planted_and_nothing_else",
            "test_the_thermometer_that_drifts_is_reported_and_no_other",
        ),
        Less(1, "the month of the sample network, of two with other noise and faults"),
    ),
    "end_to_end/test_foreign_networks.py": {
        **dict.fromkeys(
            (
                "test_a_map_is_five_commands_away",
                "test_every_reading_is_understood",
                "test_the_map_is_that_of_the_readings_as_they_are_meant",
                "test_map_and_readings_are_files_as_the_conventions_ask",
                "test_an_alert_arrives",
                "test_maps_are_nearly_as_good_as_kriging_with_the_true_covariance",
            ),
            Less(1, "network, that of the plain, which is the hardest; three in the soak"),
        ),
        "test_maps_of_raw_folders_are_nearly_as_good": Less(0, "in small, maps of archives made without files"),
    },
    "end_to_end/test_readme.py": {
        "test_commands_that_start_spark_work": Less(
            0, "ingest/test_stream.py and ingest/spark/test_reprocess.py run both commands on other archives"
        ),
    },
    "end_to_end/test_sample_network.py": {
        "test_pykrige_agrees_with_the_reference_queries": Less(2, "queries of five, spread evenly"),
        "test_q1_halves_the_error_of_the_plain_mean": Less(1, "one network of three"),
    },
    "end_to_end/test_emptied_files.py": {
        "test_a_file_of_each_kind_emptied_is_named_and_read_by_nobody": Less(
            0, "hypergrid/archive/test_checksums.py names emptied files, and test_repair.py mends or tells each"
        ),
    },
    "end_to_end/test_wheel.py": {
        "test_a_small_network_needs_neither_spark_nor_java": Less(
            0, "ingest/test_job.py has small inputs start no Spark; another environment is made for it"
        ),
        "test_files_are_read_on_spark_without_the_checkout": Less(0, "the demo reads its files on Spark, too"),
        "test_a_watched_folder_is_read_on_spark_without_the_checkout": Less(
            0, "the demo's Spark imports from the wheel, and ingest/test_stream.py streams on Spark"
        ),
    },
    "hypergrid/archive/test_processes.py": {
        "test_no_commit_from_4_processes_is_lost": Less(1, "of 80 commits; of 200 in the soak"),
    },
    "hypergrid/execution/test_strategies.py": {
        "test_every_strategy_gives_the_same_surface": Less(12, "questions of 40, spread evenly"),
    },
    "hypergrid/execution/test_walk.py": {
        "test_equal_seeds_walk_alike": Less(25, "each example walks a whole field twice"),
    },
    "hypergrid/interpolation/test_coverage.py": {
        "test_intervals_hold_the_truth_with_the_correlation_estimated": Less(1, "one correlation time of three"),
        "test_intervals_of_means_over_time_hold_the_truth": Less(2, "the first and the last of models and hours"),
    },
    "hypergrid/interpolation/test_local.py": {
        "test_many_masks_chunks_and_sets_do_not_change_an_estimate": Less(1, "one way of four"),
    },
    "hypergrid/perspective/test_climatology.py": {
        "test_every_strategy_box_and_order_gives_the_same": Less(2, "at stations, and of all"),
    },
    "hypergrid/wo_join/test_join.py": {
        "test_assembling_equals_grouping_by_key": Less(27, "loads of 80, spread evenly"),
        "test_cutting_into_pushes_changes_nothing": Less(2, "two policies of four, one form each"),
        "test_with_known_parameters_each_result_comes_once": Less(20, "loads of 60, spread evenly"),
    },
    "hypergrid/wo_join/test_spilling.py": {
        "test_a_process_grows_no_further_than_the_limit": Less(1, "one strategy of two"),
        "test_each_result_comes_once_under_every_limit_that_admits_it": Less(8, "loads of 24 (the soak has 500)"),
    },
    "hypergrid/test_against_oracle.py": {
        "test_an_archive_answers_as_the_oracle": Less(30, "questions; the soak asks 2,000 more, in all ways"),
        "test_an_array_answers_as_the_oracle": Less(60, "questions; the soak asks 2,000 more, in all ways"),
        "test_the_questions_meet_every_operator_and_every_kind_of_cells": Less(
            0, "it judges 2,000 questions, which are the same until what draws them is changed"
        ),
    },
    "hypergrid/test_little_memory.py": {
        "test_less_memory_gives_the_same_result_or_a_refusal": Less(21, "queries of 42, spread evenly"),
    },
    "hypergrid/analysis/test_lineage.py": {
        "test_an_archive_of_the_used_readings_alone_gives_the_cell": Less(13, "queries of 26, spread evenly"),
    },
    "hypergrid/analysis/test_growing.py": {
        "test_updates_equal_computing_anew": Less(1, "arrays of instants; of ends of intervals in the soak"),
    },
    "hypergrid/execution/test_buffers.py": {
        "test_with_buffers_no_cell_is_computed_twice": Less(40, "chains and blocks of eighty, spread evenly"),
    },
    "hypergrid/formats/test_in_parts.py": {
        "test_pieces_give_what_the_whole_gives": Less(13, "questions and formats of twenty, spread evenly"),
    },
    "hypergrid/test_to_zarr.py": {
        "test_a_store_is_what_compute_gives": Less(20, "questions of 60, spread evenly"),
    },
    "ingest/spark/test_reprocess.py": {
        "test_a_cluster_of_two_workers_gives_the_same": Less(
            0, "two starts on a cluster, its driver and a worker killed; on this machine beside it"
        ),
    },
    "ingest/spark/test_s3.py": {
        "test_a_reprocessing_is_that_of_this_process": Less(
            0, "ingest/spark/test_reprocess.py has it on a disk, and archive/test_s3.py reads and commits in a store"
        ),
    },
    "ingest/importing/test_importer.py": {
        "test_a_killed_import_loses_and_repeats_nothing": Less(1, "at one moment of three"),
    },
    "ingest/repair/test_restoring.py": {
        "test_a_later_file_still_amends_what_a_stream_brought_before": Less(1, "one moment of two"),
        "test_a_bit_flipped_in_any_file_but_a_chunk_of_readings_costs_nothing": Less(1, "a file of each kind"),
        "test_commits_that_cannot_be_told_any_more_are_done_again": Less(1, "one of the three kinds of files"),
    },
    "ingest/spark/test_session.py": {
        "test_a_session_is_quiet_and_leaves_nothing": Less(1, "one session; two of a process in the soak"),
    },
    "ingest/test_bad_files.py": {
        "test_memory_is_bounded": Less(1, "a line without end; a bomb in a zip as well"),
    },
    "ingest/quality/test_judging.py": {
        "test_pieces_have_the_flags_of_the_whole": Less(3, "orders of six, spread evenly"),
    },
    "ingest/test_kill.py": {
        "test_in_an_s3_store": Less(
            0, "archive/test_s3.py loses the server amid commits, and what is killed here commits as on a disk"
        ),
        "test_on_spark": Less(
            0, "what is killed here commits alike on both engines, and test_stream_kill.py kills Spark and its driver"
        ),
        "test_ten_random_moments": Less(1, "every other moment of the ten"),
    },
    "ingest/quality/test_nearby.py": {
        "test_minutes_have_the_flags_of_the_whole": Less(4, "orders and networks of 14, spread evenly"),
        "test_old_stamps_beside_new_ones_have_the_flags_of_the_whole": Less(2, "the first and the last of four"),
    },
    "ingest/test_random_kills.py": {
        "test_some_kills": Less(0, "ingest/test_kill.py kills at five moments; the soak kills fifty times"),
    },
    "ingest/test_stream_kill.py": {
        "test_kills_of_python_of_spark_and_of_both": Less(1, "both at once, which is the hardest"),
    },
    "ingest/test_stream_command.py": {
        "test_files_are_replayed_in_the_order_in_which_their_lines_came": Less(
            0, "ingest/sources/test_arrival_replay.py has the order and the archive; it starts Spark"
        ),
    },
    "queries/standing/test_kill.py": {
        "test_three_kills_of_the_server": Less(
            0, "bench/test_tap_bench.py delivers alerts through kills, a kept query is killed here"
        ),
    },
    "queries/standing/test_following.py": {
        "test_what_is_found_bit_by_bit_is_what_one_look_finds": Less(2, "two cases of twelve"),
    },
    "queries/standing/test_runner.py": {
        "test_episodes_are_those_of_the_surface_whatever_the_order": Less(2, "two orders of four"),
    },
    "queries/standing/test_turns.py": {
        "test_the_longest_waiting_query_gets_its_share_within_the_bound": Less(1, "one archive; three in the soak"),
        "test_what_takes_longer_than_a_slice_ends_all_the_same": Less(1, "twice what a slice allows; eight times"),
    },
    "queries/web/test_operations.py": {
        "test_a_server_that_ends_while_ten_queries_run_leaves_their_states_known": Less(
            1, "killed; by a signal in the soak"
        ),
    },
    "queries/standing/test_preview.py": {
        "test_it_says_what_is_told_as_readings_come": Less(3, "conditions of six, spread evenly"),
    },
    "hypergrid/archive/test_pool.py": {
        "test_steps_of_one_commit_read_and_store_as_commits_of_their_own": Less(1, "one size of the pool of three"),
    },
    "ingest/streaming/test_streamed.py": {
        "test_the_archive_is_that_of_a_batch_ingest": Less(1, "one description of two"),
    },
    "browser/test_leaving.py": {
        "test_a_page_that_is_left_before_its_first_answer_asks_no_more": Less(1, "one of the two pages that follow"),
    },
    "browser/test_explore.py": {
        "test_it_fits_narrow_windows_and_both_schemes": Less(1, "the narrower, light"),
    },
    "hypergrid/continuous/test_against_oracle.py": {
        "test_the_engine_gives_what_the_oracle_gives": Less(4, "100 trees of 2,000"),
        "test_cuts_and_arrival_do_not_matter": Less(3, "15 trees of 100, of twice the elements"),
    },
    "hypergrid/continuous/rewrite/test_rewritten.py": {
        "test_a_rewritten_tree_gives_what_the_original_gives": Less(8, "200 trees of 2,000"),
    },
    "hypergrid/archive/test_checksums.py": {
        "test_files_that_were_emptied_are_errors_and_named": Less(2, "kinds of files of five, spread evenly"),
    },
    "queries/test_damaged_state.py": {
        "test_no_flipped_bit_is_read_as_something_else": Less(2, "files of state of five, spread evenly"),
    },
    "hypergrid/archive/test_upgrade.py": {
        "test_an_upgrade_that_ends_between_two_steps_is_gone_on_with": Less(2, "the first step and the last of four"),
    },
    "queries/web/test_server.py": {
        "test_a_signal_cancels_what_runs_and_ends_the_server": Less(1, "one signal of three"),
    },
    "hypergrid/execution/test_orders.py": {
        "test_estimates_are_exact_where_computed_and_finite_elsewhere": Less(
            2, "orders and fields of six, spread evenly"
        ),
        "test_errors_of_estimates_are_what_they_say": Less(7, "orders, widths and counts of 27, all of each"),
    },
    "hypergrid/continuous/test_partitioning.py": {
        "test_parts_merged_are_the_whole": Less(4, "blocks of random queries of sixteen, spread evenly"),
    },
    "hypergrid/continuous/live/test_tap_query.py": {
        "test_a_state_of_another_program_is_made_anew_from_the_tap": Less(3, "cases of six, spread evenly"),
        "test_results_and_corrections_are_one_evaluation": Less(8, "each query, with one disorder of two"),
        "test_a_restart_changes_nothing": Less(8, "each query with each ending, once in place of twice"),
    },
    "hypergrid/continuous/live/test_evaluation.py": {
        "test_live_results_and_corrections_are_one_evaluation": Less(
            5, "blocks of random queries of twenty, spread evenly"
        ),
    },
    "hypergrid/continuous/live/test_at_once.py": {
        "test_rows_are_those_that_each_arrival_makes_known": Less(6, "each query, with one disorder of two"),
    },
    "hypergrid/continuous/engine/test_state.py": {
        "test_a_restored_run_gives_the_same_bits": Less(6, "blocks of random queries of twelve, spread evenly"),
    },
    "hypergrid/continuous/language/test_explain.py": {
        "test_unbounded_windows_are_kept_by_the_engine_where_the_projection_has_them_kept": Less(
            4, "blocks of random queries of eight, spread evenly"
        ),
    },
    "queries/standing/test_row_alerts.py": {
        "test_alerts_of_random_commits_are_the_episodes_of_one_back_test": Less(
            3, "sequences of commits of six, spread evenly"
        ),
    },
    "hypergrid/execution/test_clock_cells.py": {
        "test_cells_whose_readings_change_by_shifts_are_those_named": Less(18, "cases of thirty-six, spread evenly"),
    },
}
"""Functions that `make test` runs in small, by file."""
LEFT_OUT: Final = ("spark", "browser", "broker", "s3", "process", "slow")
"""What `pytest --quick` leaves out."""
TOGETHER: Final = ("spark",)
"""Marks whose files run on one worker, one after the other: a session of Spark is needed once, and its memory too."""
MOST_CASES: Final = 2
"""Cases of one function that `pytest --quick` runs: the first and the last."""
QUICK_EXAMPLES: Final = 20
"""Examples of a property in a quick run; a fifth of what is asked for where that is more."""
LEAST_SHARE: Final = 0.7
"""Least share of the test functions of a room that `pytest --quick` must run."""
FOLDERS_LEFT_OUT: Final = ("bench", "browser")
"""Folders of no room, which a quick run does not even import: benchmarks in small, and pages driven in Chromium.

They count apart, because rooms are the top-level packages: counted with viz, whose pages they drive, the tests in
Chromium would leave it a fifth of its functions, so a share of viz says nothing of its pages in a browser.
"""
SHARES: Final = pytest.StashKey[list[list[Any]]]()


class Share(NamedTuple):
    """How many of a room's test functions are run."""

    room: str
    run: int
    of: int

    @property
    def is_enough(self) -> bool:
        """Whether the share is large enough for a quick run."""
        return self.run >= LEAST_SHARE * self.of

    def describe(self) -> str:
        """Return it in a line."""
        return f"{self.room}: {self.run} of {self.of} test functions ({self.run / max(1, self.of):.0%})"


def spread(cases: int, maximum: int = MOST_CASES) -> list[int]:
    """Return which of some cases to take: all of few, else as many as `most`, the first and the last among them."""
    if cases <= maximum:
        return list(range(cases))
    if maximum <= 1:
        return list(range(maximum))
    return [round(place * (cases - 1) / (maximum - 1)) for place in range(maximum)]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the choice of a quick run, and that of the long proofs."""
    parser.addoption(
        "--quick",
        action="store_true",
        help="no test that is slow or needs Spark, fewer cases and examples of the others",
    )
    parser.addoption("--long", action="store_true", help="the long proofs whole, as `make soak` has them")


def pytest_configure(config: pytest.Config) -> None:
    """Choose how properties are tested: with examples that once failed, which are kept beside the tests."""
    # A busy machine is no failure.
    kept = DirectoryBasedExampleDatabase(TESTS.parent / ".hypothesis" / "examples")
    slow = [hypothesis.HealthCheck.too_slow]
    hypothesis.settings.register_profile("hypergrid", database=kept, deadline=None, suppress_health_check=slow)
    hypothesis.settings.load_profile("hypergrid")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Pass over the folders that no quick run needs."""
    is_left_out = collection_path.parent == TESTS and collection_path.name in FOLDERS_LEFT_OUT
    return True if is_left_out and config.getoption("--quick") else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests, and leave out what a quick run has no time for."""
    for item in items:
        for mark in _marks(item):
            item.add_marker(mark)
    if not config.getoption("--long"):
        _shorten(items, is_soak=config.getoption("markexpr") == "soak")
    if hasattr(config, "workerinput"):
        _begin_with_the_longest(items)
    if config.getoption("--quick"):
        _leave_out(config, items)


def _place(item: pytest.Item) -> str:
    """Return the path of a test's file below the tests, empty where it is elsewhere."""
    return item.path.relative_to(TESTS).as_posix() if item.path.is_relative_to(TESTS) else ""


def _function(item: pytest.Item) -> str:
    return getattr(item, "originalname", None) or item.name


def _marks(item: pytest.Item) -> Iterable[str]:
    place, fixtures = _place(item), getattr(item, "fixturenames", ())
    of_path = {mark for start, mark in OF_PATHS.items() if place.startswith(start)}
    of_fixtures = {mark for name, mark in OF_FIXTURES.items() if name in fixtures}
    of_function = {mark for mark, files in OF_FUNCTIONS.items() if _function(item) in files.get(place, ())}
    return sorted(of_path | of_fixtures | of_function)


def _shorten(items: list[pytest.Item], *, is_soak: bool) -> None:
    """Mark as soak what is left for it of long proofs; all of them where it runs."""
    cases: dict[tuple[str, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if _function(item) in LONG.get(_place(item), {}) and not item.get_closest_marker("soak"):
            cases[_place(item), _function(item)].append(item)
    for (place, function), together in cases.items():
        less = LONG[place][function]
        is_property = _settings(together[0]) is not None
        kept = [] if is_soak else together if is_property else [together[n] for n in spread(len(together), less.kept)]
        for item in together:
            if item not in kept:
                item.add_marker("soak")
            elif is_property:
                _ask_for(item, less.kept)


def _begin_with_the_longest(items: list[pytest.Item]) -> None:
    """Put first what takes longest, so that no worker begins with it when the others have ended."""
    longest = ("spark", "browser", "process", "slow", "bench", "s3", "broker")
    items.sort(key=lambda item: next((n for n, mark in enumerate(longest) if item.get_closest_marker(mark)), 99))


def group(nodeid: str) -> str:
    """Return what a test is kept together with: its file, for the fixtures, or all files of a mark of `TOGETHER`."""
    file = nodeid.partition("::")[0]
    place = file.removeprefix("tests/")
    return next((mark for start, mark in OF_PATHS.items() if mark in TOGETHER and place.startswith(start)), file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:  # noqa: ANN401 - of xdist
    """Give whole groups to the workers: xdist's own way to name them, in the ids of tests, pytest 9.2 ignores."""
    from xdist.scheduler import LoadFileScheduling  # noqa: PLC0415 - asked for where xdist runs only

    class Grouped(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group(nodeid)

    return Grouped(config, log) if config.getoption("dist") == "loadfile" else None


def shares(all_of: Iterable[tuple[str, str]], run: Iterable[tuple[str, str]]) -> list[Share]:
    """Return the share of each room, from the files and names of all functions and of those that are run."""
    rooms: dict[str, set[tuple[str, str]]] = defaultdict(set)
    left = set(run)
    for place, function in all_of:
        rooms[place.split("/")[0] if "/" in place else "tests"].add((place, function))
    return [Share(room, len(functions & left), len(functions)) for room, functions in sorted(rooms.items())]


def _leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    proper = [item for item in items if not item.get_closest_marker("soak")]
    cases: dict[tuple[str, str], list[pytest.Item]] = defaultdict(list)
    for item in proper:
        cases[_place(item), _function(item)].append(item)
    kept: dict[pytest.Item, tuple[str, str]] = {}
    for function, together in cases.items():
        quick = [item for item in together if not any(item.get_closest_marker(mark) for mark in LEFT_OUT)]
        kept |= {quick[number]: function for number in spread(len(quick))}
    told = [list(share) for share in shares(cases, kept.values())]
    if hasattr(config, "workeroutput"):
        config.workeroutput["shares"] = told
    else:
        config.stash[SHARES] = told
    for item in kept:
        _ask_for_less(item)
    left_out = [item for item in items if item not in kept]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item in kept]


def _test(item: pytest.Item) -> Any:  # noqa: ANN401 - any function, or none
    test = getattr(item, "obj", None)
    return getattr(test, "__func__", test)


def _settings(item: pytest.Item) -> hypothesis.settings | None:
    """Return how a property is tested, if it is one."""
    return getattr(_test(item), "_hypothesis_internal_use_settings", None)


def _ask_for(item: pytest.Item, examples: int) -> None:
    """Have a property tested with so many examples."""
    _test(item)._hypothesis_internal_use_settings = hypothesis.settings(_settings(item), max_examples=examples)


def _ask_for_less(item: pytest.Item) -> None:
    """Have a property tested with fewer examples."""
    settings, test = _settings(item), _test(item)
    # The cases of one function share it.
    if settings is None or hasattr(test, "is_quick"):
        return
    test.is_quick = True
    _ask_for(item, min(settings.max_examples, max(QUICK_EXAMPLES, settings.max_examples // 5)))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:  # noqa: ANN401 - xdist's controller of a worker
    """Take over what a worker counted."""
    if told := getattr(node, "workeroutput", {}).get("shares"):
        node.config.stash[SHARES] = told


def _counted(config: pytest.Config) -> list[Share]:
    return [Share(*told) for told in config.stash.get(SHARES, [])]


def _too_few(config: pytest.Config) -> list[Share]:
    """Return the rooms of which too few functions were run, where all were meant to be."""
    is_whole = config.args_source is not pytest.Config.ArgsSource.ARGS
    return [share for share in _counted(config) if is_whole and not share.is_enough]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail where too few functions of a room were run."""
    if _too_few(session.config) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the shares of the rooms."""
    if counted := _counted(config):
        terminalreporter.section("functions of each room in this quick run")
        for share in counted:
            terminalreporter.line(share.describe())
    for share in _too_few(config):
        terminalreporter.line(
            f"{share.room} has less than {LEAST_SHARE:.0%} of its functions in a quick run: mark fewer as "
            f"{', '.join(LEFT_OUT)} in tests/selection.py, or make them cheaper",
            red=True,
        )
