import Logging
import StageConditions
import StageControl
import StageModel
import StageSystem

extension StagingPermit {
    /// Returns the conditions of the job that the network and the power supply do not meet now, as this
    /// process sees them.
    ///
    /// Counts a state that the system does not report as met.
    func unmetConditions() async -> [PendingReason] {
        guard let conditions = job.conditions else { return [] }
        var sources = ConditionSources()
        // No person waits for a periodic run.
        sources.readingTimeout = .seconds(15)
        let address = busAddress ?? environment["DBUS_SYSTEM_BUS_ADDRESS"]
        if let address { sources.busAddress = address }
        do throws(FileError) {
            let monitor = try ConditionMonitor(sources: sources, logger: logger)
            defer { monitor.stop() }
            let current = await monitor.settled()
            return current.obstacles(
                allowsMetered: conditions.allowsExpensiveNetworkAccess,
                needsPower: conditions.requiresExternalPower
            )
            .compactMap { PendingReason.Kind(rawValue: $0.rawValue).map { PendingReason($0) } }
        } catch {
            logger.warning("Network and power are not known", metadata: ["error": "\(error)"])
            return []
        }
    }
}
