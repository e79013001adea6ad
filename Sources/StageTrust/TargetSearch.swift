import StageModel

/// Searches trusted metadata for a target: the pre-order depth-first search of The Update Framework
/// (specification 1.0.34, section 5.6.7) as a state machine without I/O.
///
/// The caller asks for the next step and performs it, as with ``MetadataRefresh``. Delegated roles are
/// verified with the keys of the role that delegates to them in this search, whether stored or downloaded.
package struct TargetSearch: Sendable {
    /// The next action of the caller.
    package enum Step: Hashable, Sendable {
        /// Read the role's stored metadata, then call ``TargetSearch/accept(_:)`` or, if there is none,
        /// ``TargetSearch/notFound()``.
        case load(RoleName)
        /// Download the file, then call ``TargetSearch/accept(_:)`` or ``TargetSearch/notFound()``.
        /// A download that fails ends the search.
        case fetch(MetadataFile)
        /// Replace the role's stored metadata by the bytes, atomically.
        case store(RoleName, [UInt8])
        /// The target was found.
        case found(Target)
        /// No trusted role names the target.
        case absent
    }

    /// A delegation to visit, and its delegator.
    private struct Visit {
        let delegation: Delegation
        let delegator: RoleName
        let version: Int
    }

    private enum Phase {
        case load(Visit)
        case fetch(Visit, MetadataFile)
        case found(Target)
        case absent
    }

    private let path: TargetPath
    private let metadata: TrustedMetadata
    private let limits: TrustLimits
    private var stack: [Visit] = []
    private var visited: Set<RoleName> = []
    private var phase = Phase.absent
    private var steps: [Step] = []
    private var failure: TrustError?

    /// Starts a search for a target.
    ///
    /// Metadata of delegated roles must not have expired at the reference time of `metadata`, if it has one.
    package init(
        for path: TargetPath,
        in metadata: TrustedMetadata,
        limits: TrustLimits = TrustLimits()
    ) {
        self.path = path
        self.metadata = metadata
        self.limits = limits
        visit(.targets, with: metadata.targets)
    }

    /// Returns the next step; repeats all steps except `store` if no other call happens in between.
    ///
    /// - Throws: ``TrustError`` that ended the search, after all earlier steps were returned.
    package mutating func next() throws(TrustError) -> Step {
        if !steps.isEmpty { return steps.removeFirst() }
        if let failure { throw failure }
        return switch phase {
        case .load(let visit): .load(visit.delegation.role)
        case .fetch(_, let file): .fetch(file)
        case .found(let target): .found(target)
        case .absent: .absent
        }
    }

    /// Verifies the bytes of the requested file.
    ///
    /// - Precondition: The last step was ``Step/load(_:)`` or ``Step/fetch(_:)``.
    package mutating func accept(_ bytes: [UInt8]) {
        do throws(TrustError) {
            switch phase {
            case .load(let visit):
                // A stored file of another version counts as missing.
                if let targets = try? read(bytes, of: visit) {
                    self.visit(visit.delegation.role, with: targets)
                } else {
                    try fetch(visit)
                }
            case .fetch(let visit, let file):
                try file.checkLength(bytes)
                let targets = try read(bytes, of: visit)
                steps.append(.store(visit.delegation.role, bytes))
                self.visit(visit.delegation.role, with: targets)
            case .found, .absent:
                preconditionFailure("no file is wanted")
            }
        } catch {
            failure = error
        }
    }

    /// Reports that the requested file does not exist, in storage or on the server.
    ///
    /// - Precondition: The last step was ``Step/load(_:)`` or ``Step/fetch(_:)``.
    package mutating func notFound() {
        do throws(TrustError) {
            switch phase {
            case .load(let visit): try fetch(visit)
            case .fetch(let visit, let file):
                throw .missing(visit.delegation.role, path: file.path)
            case .found, .absent:
                preconditionFailure("no file is wanted")
            }
        } catch {
            failure = error
        }
    }

    private func read(_ bytes: [UInt8], of visit: Visit) throws(TrustError) -> TargetsMetadata {
        try MetadataReader(root: metadata.root, time: metadata.time).targets(
            bytes,
            of: visit.delegation,
            by: (visit.delegator, visit.version),
            describedBy: metadata.snapshot,
            limit: limits.targetsLength
        )
    }

    private mutating func fetch(_ visit: Visit) throws(TrustError) {
        let role = visit.delegation.role
        guard let file = metadata.snapshot.description(of: role) else {
            throw .unlisted(role, delegator: visit.delegator)
        }
        phase = .fetch(
            visit,
            MetadataFile(
                of: role,
                version: metadata.root.hasConsistentSnapshots ? file.version : nil,
                maximumLength: file.maximumLength(limits.targetsLength)
            )
        )
    }

    /// Looks the target up in a role's metadata, then continues with the roles that it delegates to.
    private mutating func visit(_ role: RoleName, with targets: TargetsMetadata) {
        visited.insert(role)
        if let found = targets.description(of: path) {
            phase = .found(
                Target(
                    path,
                    describedBy: found,
                    of: MetadataVersion(role: role, version: targets.version),
                    isConsistent: metadata.root.hasConsistentSnapshots
                )
            )
            return
        }
        var visits: [Visit] = []
        for delegation in targets.delegations.list where delegation.covers(path.text) {
            visits.append(
                Visit(delegation: delegation, delegator: role, version: targets.version)
            )
            if delegation.isTerminating {
                // Other pending delegations, including those of earlier roles, must not be searched.
                stack = []
                break
            }
        }
        stack += visits.reversed()
        advance()
    }

    private mutating func advance() {
        while let visit = stack.popLast() {
            if visited.contains(visit.delegation.role) { continue }
            guard visited.count < limits.visitedRoles else {
                failure = .tooManyRoles(target: path.text, limit: limits.visitedRoles)
                return
            }
            phase = .load(visit)
            return
        }
        phase = .absent
    }
}
