public import StageModel
import StageSystem
import SystemPackage

/// What a rollback has changed.
public struct Rollback: Equatable, Sendable {
    /// The generation that was current before.
    public var from: GenerationName
    /// The one that is current now.
    public var to: GenerationName
    /// The pin that holds the pack there; `nil` where a rollback was taken back, and its pin with it.
    public var pin: Pin?
}

extension Container {
    /// Makes the previous generation of a pack the current one again, and pins the pack to it.
    ///
    /// Readers go on reading what they hold. A rollback of a pack that a rollback has pinned takes that
    /// one back: the newer generation is current again, and the pin is gone.
    ///
    /// One rename decides. When the call returns, all is durable; when it throws or the machine dies,
    /// the pack is as it was before or as it is after, pin included.
    ///
    /// - Throws: ``ContainerError/notStaged(_:)`` or ``ContainerError/noPrevious(_:)`` if there is
    ///   nothing to go back from or to.
    public func rollBack(_ lock: PackLock, now: Int64) throws(ContainerError) -> Rollback {
        let id = lock.id
        guard let current = try reader.currentGeneration(of: id) else { throw .notStaged(id) }
        guard let previous = try reader.previousGeneration(of: id),
            let content = previous.content
        else {
            throw .noPrevious(id)
        }
        if try reader.pin(of: id)?.replaced == previous {
            // The pin holds nothing from the switch on.
            try setCurrent(previous, of: id)
            try removePin(of: id)
            return Rollback(from: current, to: previous, pin: nil)
        }
        let pin = Pin(content, pinnedAt: now, replacing: current)
        // It holds nothing before the switch.
        try write(pin, of: id)
        try setCurrent(previous, of: id)
        return Rollback(from: current, to: previous, pin: pin)
    }

    private func setCurrent(
        _ generation: GenerationName,
        of id: PackID
    ) throws(ContainerError) {
        try ContainerError.wrapping { () throws(FileError) in
            // It may never have been current: a publication that was killed has not let readers in.
            let name = FilePath(id.component).appending(generation.component)
            try generations.directory(name)?.setMode(.directory)
            try packs.replaceLink(id.component, to: ContainerLayout.linkTarget(id, generation))
            try packs.synchronize()
        }
    }
}

extension ContainerReader {
    /// Returns the generation that was current before the one that is, as far as it is on disk.
    ///
    /// That of other content: a damaged generation is not what its repaired copy is rolled back to.
    /// Where nothing tells what was current before, it is the one that was staged last.
    public func previousGeneration(of id: PackID) throws(ContainerError) -> GenerationName? {
        guard let current = try currentGeneration(of: id) else { return nil }
        var others: [(stagedAt: Int64, name: GenerationName)] = []
        for name in try generations(of: id) where name != current && !name.hasContent(of: current) {
            guard name.content != nil, let record = try wholeRecord(of: name, id) else { continue }
            others.append((record.stagedAt, name))
        }
        // As a rule there are none, and no record has to be read.
        guard !others.isEmpty else { return nil }
        let before = [
            try pin(of: id)?.rolledBackFrom, try wholeRecord(of: current, id)?.replaced,
        ]
        for case let name? in before {
            if let known = others.first(where: { $0.name.description == name }) {
                return known.name
            }
        }
        return others.max { $0.stagedAt < $1.stagedAt }?.name
    }

    /// What the record of a generation says; `nil` where there is none or it is damaged.
    func wholeRecord(
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
