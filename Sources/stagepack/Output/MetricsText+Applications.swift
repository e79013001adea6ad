import StageModel

extension MetricsText {
    /// A text of the metrics of registered applications, without samples.
    static var applications: MetricsText {
        MetricsText([
            Metric(
                "stagepack_build_info",
                help: "The version of StagePack, in a label; the value is 1."
            ),
            Metric(
                "stagepack_application_readable",
                help: "1 if the application's container could be read, else 0."
            ),
            Metric("stagepack_packs", help: "Packs by policy and state."),
            Metric(
                "stagepack_missing_essential_packs",
                help: "Essential packs that are not staged, once there is a manifest."
            ),
            Metric("stagepack_staged_bytes", help: "Bytes of the files of staged packs."),
            Metric("stagepack_downloaded_bytes", help: "Bytes of downloads that are not complete."),
            Metric(
                "stagepack_pack_staged_timestamp_seconds",
                help: "The time at which a pack was staged."
            ),
            Metric(
                "stagepack_manifest_received_timestamp_seconds",
                help: "The time of the manifest in use."
            ),
            Metric("stagepack_last_run_timestamp_seconds", help: "The end of the last run."),
            Metric(
                "stagepack_last_run_failed",
                help: "1 if the last run or one of its packs failed, else 0."
            ),
            Metric(
                "stagepack_last_success_timestamp_seconds",
                help:
                    "The end of the last run for an event without a failure; 0 if there was none."
            ),
            Metric(
                "stagepack_pending_event",
                help: "1 if an installation or update is not complete, else 0."
            ),
            Metric(
                "stagepack_pack_failures",
                help: "The number of successive runs that could not stage a pack."
            ),
        ])
    }
}
