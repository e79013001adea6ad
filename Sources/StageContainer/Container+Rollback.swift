public import StageModel
import StageSystem
import SystemPackage

/// The result of a rollback.
public struct Rollback: Equatable, Sendable {
    /// The generation that was current before.
    public var from: GenerationName
    /// The generation that is current now.
    public var to: GenerationName
    /// The effective pin: that of the rollback or, if it undid an earlier one, the pin before that; `nil` if there
    /// was none.
    public var pin: Pin?
}

extension Container {
    /// Makes the previous generation of a pack current, and pins the pack to it.
    ///
    /// Leases of readers stay valid. If the pack is pinned by a rollback, undoes that rollback instead: the
    /// newer generation becomes current again, and the pin is removed; a pin before the rollback is restored.
    ///
    /// The switch is one rename. On return, the change is durable; after an error or a crash, it is done
    /// completely, including the pin, or not at all.
    ///
    /// - Throws: ``ContainerError/notStaged(_:)`` if the pack is not staged; ``ContainerError/noPrevious(_:)``
    ///   if it has no previous generation.
    public func rollBack(_ lock: PackLock, now: Int64) throws(ContainerError) -> Rollback {
        let id = lock.id
        let (current, previous, content) = try generationsOfRollback(of: id)
        let effective = try reader.pin(of: id)
        if let effective, effective.replaced == previous {
            // After the switch the pin does not match the current generation, and only the pin before it has
            // effect.
            try setCurrent(previous, of: id)
            if let earlier = effective.earlier {
                try write(earlier, of: id)
            } else {
                try removePin(of: id)
            }
            return Rollback(from: current, to: previous, pin: effective.earlier)
        }
        let pin = Pin(content, pinnedAt: now, replacing: current, heldBy: effective)
        // Before the switch the pin does not match the current generation and has no effect.
        try write(pin, of: id)
        try setCurrent(previous, of: id)
        return Rollback(from: current, to: previous, pin: pin)
    }

    /// Checks that the pack has a previous generation to roll back to; changes nothing.
    ///
    /// - Throws: ``ContainerError/notStaged(_:)`` and ``ContainerError/noPrevious(_:)`` like ``rollBack(_:now:)``.
    package func checkForRollback(_ lock: PackLock) throws(ContainerError) {
        _ = try generationsOfRollback(of: lock.id)
    }

    /// Returns the current generation of a pack, and the previous one with its content.
    private func generationsOfRollback(
        of id: PackID
    ) throws(ContainerError) -> (GenerationName, GenerationName, GenerationName.Content) {
        guard let current = try reader.currentGeneration(of: id) else { throw .notStaged(id) }
        guard let previous = try reader.previousGeneration(of: id),
            let content = previous.content
        else {
            throw .noPrevious(id)
        }
        return (current, previous, content)
    }

    /// Makes a generation current, durably, with one rename.
    func setCurrent(
        _ generation: GenerationName,
        of id: PackID
    ) throws(ContainerError) {
        try ContainerError.wrapping { () throws(FileError) in
            // A killed publication may have left the generation inaccessible to readers.
            let name = FilePath(id.component).appending(generation.component)
            try generations.directory(name)?.setMode(.directory)
            try removingCopy(of: id) { () throws(FileError) in
                try packs.replaceLink(
                    id.component,
                    to: ContainerLayout.linkTarget(of: id, to: generation)
                )
            }
            try packs.synchronize()
        }
    }
}

extension ContainerReader {
    /// Returns the generation that was current before the current one, if it is on disk.
    ///
    /// Ignores generations with the same content, so that a repaired pack is not rolled back to its damaged
    /// generation. If no record names a predecessor that is on disk, returns the first of
    /// `predecessors(of:)`.
    public func previousGeneration(of id: PackID) throws(ContainerError) -> GenerationName? {
        guard let current = try currentGeneration(of: id) else { return nil }
        let others = try targets(ofRollbackFrom: current, id)
        // Usually there are none, and no record has to be read.
        guard !others.isEmpty else { return nil }
        let before = [
            try pin(of: id)?.rolledBackFrom, try intactRecord(of: current, id)?.replaced,
        ]
        for case let name? in before {
            if let known = others.first(where: { $0.name.description == name }) {
                return known.name
            }
        }
        return try predecessors(of: id).first
    }

    /// Returns the generations with other content that the current one may have replaced, the newest first.
    ///
    /// Excludes generations that were staged after the current one: a rollback has replaced them, or a crash prevented
    /// their publication. Without a record of the current generation, excludes none.
    func predecessors(of id: PackID) throws(ContainerError) -> [GenerationName] {
        guard let current = try currentGeneration(of: id) else { return [] }
        let others = try targets(ofRollbackFrom: current, id)
        guard !others.isEmpty else { return [] }
        let latest = try intactRecord(of: current, id).map { RollbackTarget(current, record: $0) }
        return others.filter { other in latest.map { other.precedes($0) } ?? true }
            .sorted { $1.precedes($0) }.map(\.name)
    }

    /// Returns the generations of other content than the current one that have a record.
    private func targets(
        ofRollbackFrom current: GenerationName,
        _ id: PackID
    ) throws(ContainerError) -> [RollbackTarget] {
        var others: [RollbackTarget] = []
        for name in try generations(of: id) where name != current && !name.hasContent(of: current) {
            guard name.content != nil, let record = try intactRecord(of: name, id) else { continue }
            others.append(RollbackTarget(name, record: record))
        }
        return others
    }

    /// Returns the record of a generation; `nil` if it is missing or damaged.
    func intactRecord(
        of name: GenerationName,
        _ id: PackID
    ) throws(ContainerError) -> StagedPack? {
        do throws(ContainerError) {
            return try record(of: name, id)
        } catch {
            guard case .damagedRecord = error else { throw error }
            return nil
        }
    }
}

/// A generation with what orders it among the generations of its pack.
private struct RollbackTarget {
    let name: GenerationName
    let record: StagedPack

    init(_ name: GenerationName, record: StagedPack) {
        self.name = name
        self.record = record
    }

    /// Returns whether this generation was staged before another one of the same pack.
    ///
    /// If both were staged in the same second, the one that the other names as replaced was first; otherwise the one with
    /// the lower version, or the first copy of the same version.
    func precedes(_ other: RollbackTarget) -> Bool {
        if record.stagedAt != other.record.stagedAt {
            return record.stagedAt < other.record.stagedAt
        }
        if other.record.replaced == name.description { return true }
        if record.replaced == other.name.description { return false }
        return (record.version, name.attempt) < (other.record.version, other.name.attempt)
    }
}
