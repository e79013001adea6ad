public import StageModel
import StageTransfer

/// The budget for an application's packs before its first launch: the restrictions of its registration, and
/// the amounts used.
///
/// Names and meaning follow Apple's `BAInitialDownloadRestrictions`. The restrictions apply until the first
/// launch; from then on there is no budget.
public struct InitialBudget: Equatable, Sendable {
    /// The restrictions of the registration.
    public let restrictions: Registration.Restrictions
    /// Bytes transferred for essential packs and the manifest.
    public private(set) var essentialDownloads: ByteCount
    /// Bytes transferred for the other packs.
    public private(set) var otherDownloads: ByteCount
    /// Bytes of the files of essential packs.
    public private(set) var essentialFiles: ByteCount
    /// Bytes of the files of the other packs.
    public private(set) var otherFiles: ByteCount
    private let hosts: @Sendable (Pack) -> [String]

    /// Creates a budget with the amounts used so far.
    ///
    /// - Parameters:
    ///   - restrictions: The restrictions of the registration.
    ///   - essentialDownloads: Bytes transferred so far for essential packs and the manifest.
    ///   - otherDownloads: Bytes transferred so far for the other packs.
    ///   - essentialFiles: Bytes of the staged files of essential packs.
    ///   - otherFiles: Bytes of the staged files of the other packs.
    ///   - hosts: Returns the hosts that offer the content of a pack.
    public init(
        restrictions: Registration.Restrictions,
        essentialDownloads: ByteCount = .zero,
        otherDownloads: ByteCount = .zero,
        essentialFiles: ByteCount = .zero,
        otherFiles: ByteCount = .zero,
        hosts: @escaping @Sendable (Pack) -> [String] = { _ in [] }
    ) {
        self.restrictions = restrictions
        self.essentialDownloads = essentialDownloads
        self.otherDownloads = otherDownloads
        self.essentialFiles = essentialFiles
        self.otherFiles = otherFiles
        self.hosts = hosts
    }

    /// Bytes that may still be transferred for essential packs; `nil` for no limit.
    public var remainingEssentialDownloads: ByteCount? {
        restrictions.essentialDownloadAllowance.map { max($0 - essentialDownloads, .zero) }
    }

    /// Bytes that may still be transferred for the other packs; `nil` for no limit.
    public var remainingOtherDownloads: ByteCount? {
        restrictions.downloadAllowance.map { max($0 - otherDownloads, .zero) }
    }

    /// Returns the reason to refuse staging the pack, or `nil` if the budget allows it.
    public func refusal(of pack: Pack, isEssential: Bool) -> Plan.Refusal? {
        let hosts = hosts(pack)
        if let domains = restrictions.downloadDomainAllowList, !hosts.isEmpty {
            let allowed = AllowedDomains(domains)
            if !hosts.contains(where: allowed.contains) { return .disallowedDomain(hosts) }
        }
        let limits: [(Allowance, ByteCount?, used: ByteCount, needed: ByteCount)] =
            isEssential
            ? [
                (
                    .essentialDownloadAllowance, restrictions.essentialDownloadAllowance,
                    essentialDownloads, pack.downloadSize
                ),
                (
                    .essentialMaxInstallSize, restrictions.essentialMaxInstallSize,
                    essentialFiles, pack.installedSize
                ),
            ]
            : [
                (
                    .downloadAllowance, restrictions.downloadAllowance,
                    otherDownloads, pack.downloadSize
                ),
                (.maxInstallSize, restrictions.maxInstallSize, otherFiles, pack.installedSize),
            ]
        for (allowance, limit, used, needed) in limits {
            guard let limit, used + needed > limit else { continue }
            return .exceedsAllowance(
                allowance,
                needed: needed,
                remaining: max(limit - used, .zero)
            )
        }
        return nil
    }

    /// Returns the reason to refuse fetching a file that is not a pack, or `nil` if the budget allows it.
    public func refusal(
        ofFileFrom host: String,
        size: ByteCount,
        isEssential: Bool
    ) -> Plan.Refusal? {
        if let domains = restrictions.downloadDomainAllowList,
            !AllowedDomains(domains).contains(host)
        {
            return .disallowedDomain([host])
        }
        let remaining = isEssential ? remainingEssentialDownloads : remainingOtherDownloads
        guard let remaining, size > remaining else { return nil }
        return .exceedsAllowance(
            isEssential ? .essentialDownloadAllowance : .downloadAllowance,
            needed: size,
            remaining: remaining
        )
    }

    /// Counts a file that will be fetched.
    public mutating func spend(_ size: ByteCount, isEssential: Bool) {
        if isEssential { essentialDownloads += size } else { otherDownloads += size }
    }

    /// Counts a pack that will be staged.
    public mutating func spend(_ pack: Pack, isEssential: Bool) {
        if isEssential {
            essentialDownloads += pack.downloadSize
            essentialFiles += pack.installedSize
        } else {
            otherDownloads += pack.downloadSize
            otherFiles += pack.installedSize
        }
    }

    /// Returns whether both budgets have the same restrictions and amounts used; `hosts` is not compared.
    public static func == (left: InitialBudget, right: InitialBudget) -> Bool {
        left.restrictions == right.restrictions
            && left.essentialDownloads == right.essentialDownloads
            && left.otherDownloads == right.otherDownloads
            && left.essentialFiles == right.essentialFiles
            && left.otherFiles == right.otherFiles
    }
}

extension Planner {
    /// Decides which indexed packs may be downloaded as archives if the download of their objects fails.
    ///
    /// Reserves the bytes of archives, in the order of the packs, from what the transfers of the plan leave of the budget.
    func reserveArchives(of entries: inout [Plan.Entry], in budget: InitialBudget) {
        var budget = budget
        for index in entries.indices {
            let pack = entries[index].pack
            guard case .stage = entries[index].decision, !entries[index].isKept, pack.index != nil,
                let size = pack.archiveDownloadSize
            else { continue }
            let isEssential = isEssential(pack)
            let remaining =
                isEssential ? budget.remainingEssentialDownloads : budget.remainingOtherDownloads
            let isLeft = remaining.map { size <= $0 } ?? true
            if isLeft { budget.spend(size, isEssential: isEssential) }
            entries[index].mayReplaceObjects = isLeft
        }
    }
}

/// A limit in the restrictions of a registration; the raw value is its key there.
@nonexhaustive
public enum Allowance: String, Equatable, Sendable {
    /// Bytes to transfer for packs that are not essential.
    case downloadAllowance
    /// Bytes to transfer for essential packs and the manifest.
    case essentialDownloadAllowance
    /// Bytes of the files of packs that are not essential.
    case maxInstallSize
    /// Bytes of the files of essential packs.
    case essentialMaxInstallSize
}
