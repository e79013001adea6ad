import Logging
import StageConditions
import StageControl
import StageModel
import StageSystem

extension DaemonTurn {
    /// Returns the conditions of the order that the network and the power supply do not meet now, as this
    /// process sees them.
    ///
    /// Counts a state that the system does not report as met.
    func unmetConditions() async -> [PendingReason] {
        guard let conditions = order.conditions else { return [] }
        var sources = ConditionSources()
        // No person waits for a periodic run.
        sources.readingTimeout = .seconds(15)
        let address = busAddress ?? environment["DBUS_SYSTEM_BUS_ADDRESS"]
        if let address { sources.busAddress = address }
        do throws(FileError) {
            let monitor = try ConditionMonitor(sources: sources, logger: logger)
            defer { monitor.stop() }
            let current = await monitor.settled()
            return current.unmet(conditions.needs).map { PendingReason(PendingReason.Kind($0)) }
        } catch {
            logger.warning("Network and power are not known", metadata: ["error": "\(error)"])
            return []
        }
    }
}

extension UpdateConditions {
    /// The conditions as the needs of a transfer.
    fileprivate var needs: [ConditionNeed] {
        var needs: [ConditionNeed] = requiresExternalPower ? [.mainsPower, .fullPower] : []
        if !allowsExpensiveNetworkAccess { needs.append(.inexpensiveNetwork) }
        if !allowsConstrainedNetworkAccess { needs.append(.unconstrainedNetwork) }
        return needs
    }
}

extension PendingReason.Kind {
    fileprivate init(_ need: ConditionNeed) {
        self =
            switch need {
            case .network: .offline
            case .inexpensiveNetwork: .metered
            case .unconstrainedNetwork: .constrained
            case .mainsPower: .onBattery
            case .fullPower: .powerSaver
            }
    }
}
