import StageModel
import StageSystem
import SystemPackage

/// Counts of the generations and files that a removal deleted, and of those that it kept.
public struct Removal: Equatable, Sendable {
    /// The number of generations deleted.
    public var generations = 0
    /// The number of deleted staging areas, temporary files and other leftovers of dead processes.
    public var leftovers = 0
    /// The number of deleted partial files that no run would resume.
    public var downloads = 0
    /// The number of generations, and of versions with single files, that stay because they are leased.
    public var inUse = 0
    /// The first error; the entry that it concerns stays completely or in part, and the others are removed.
    public var failure: ContainerError?

    /// Creates a value with zero counts.
    public init() {}

    /// `true` if the removal freed space.
    public var hasFreed: Bool { generations + leftovers + downloads > 0 }

    /// Adds the counts of another removal.
    public mutating func add(_ other: Removal) {
        generations += other.generations
        leftovers += other.leftovers
        downloads += other.downloads
        inUse += other.inUse
        failure = failure ?? other.failure
    }

    /// Throws ``failure`` if there is one.
    public func check() throws(ContainerError) {
        if let failure { throw failure }
    }

    /// Performs a step of the removal, and records its error if it is the first.
    mutating func attempt(_ step: (inout Removal) throws(FileError) -> Void) {
        do throws(FileError) {
            try step(&self)
        } catch {
            failure = failure ?? .file(error)
        }
    }

    /// Performs a step of the removal that may fail with any error of the container.
    mutating func attemptStep(_ step: () throws(ContainerError) -> Removal) {
        do throws(ContainerError) {
            add(try step())
        } catch {
            failure = failure ?? error
        }
    }
}

extension Container {
    /// Unpublishes a pack, and deletes its generations and single files unless they are leased, and its staging areas and
    /// partial downloads.
    ///
    /// Readers with a lease can continue to read; `gc` deletes what they use later.
    ///
    /// - Parameters:
    ///   - lock: The lock on the pack.
    ///   - includingPinned: Pass `true` to remove a pinned pack together with its pin.
    /// - Returns: The counts, with the first error of a step after the pack was unpublished; the other steps are
    ///   carried out.
    /// - Throws: ``ContainerError/pinned(_:version:)`` if the pack is pinned; ``ContainerError/file(_:)`` if it
    ///   cannot be unpublished, or if a lease cannot be opened; nothing is changed then.
    public func remove(
        _ lock: PackLock,
        includingPinned: Bool = false
    ) throws(ContainerError) -> Removal {
        try checkRemovability(lock)
        var removal = try removeStaged(lock, includingPinned: includingPinned)
        removal.attemptStep { () throws(ContainerError) in try removePartialContent(of: lock.id) }
        removal.attemptStep { () throws(ContainerError) in try removeDownloads(of: lock.id) }
        return removal
    }

    /// Unpublishes a pack, and deletes its generations, pin and staging areas, but not what is shared with other
    /// packs: single files and downloads.
    func removeStaged(
        _ lock: PackLock,
        includingPinned: Bool = false
    ) throws(ContainerError) -> Removal {
        let id = lock.id
        if !includingPinned, let pin = try reader.pin(of: id) {
            throw .pinned(id, version: pin.version)
        }
        try ContainerError.wrapping { () throws(FileError) in
            try removingCopy(of: id) { () throws(FileError) in
                _ = try packs.remove(id.component)
            }
            try packs.synchronize()
        }
        var removal = Removal()
        removal.attemptStep { () throws(ContainerError) in
            try removeObsoleteGenerations(lock, keeping: 0)
        }
        removal.attemptStep { () throws(ContainerError) in
            try removePin(of: id)
            return Removal()
        }
        removal.add(removeAreas(of: id))
        return removal
    }

    /// Fails if this process may not delete a generation of a pack, such as one that root has staged, so that nothing is
    /// changed then.
    ///
    /// - Throws: ``ContainerError/file(_:)`` if a lease cannot be opened.
    package func checkRemovability(_ lock: PackLock) throws(ContainerError) {
        let id = lock.id
        let names = try reader.generations(of: id)
        try ContainerError.wrapping { () throws(FileError) in
            guard let directory = try generations.directory(FilePath(id.component)) else { return }
            for name in names {
                let path = FilePath(name.component).appending(ContainerLayout.lease)
                _ = try directory.leaseFile(replacing: path)
            }
        }
    }

    /// Deletes the generations of a pack that are not current, leased or kept.
    ///
    /// Keeps `keeping` generations: the previous one first, then the newest of those that the current one may
    /// have replaced. Removes a pin that no longer matches the current generation.
    public func removeObsoleteGenerations(
        _ lock: PackLock,
        keeping: Int
    ) throws(ContainerError) -> Removal {
        let id = lock.id
        // 'repair' makes the missing link again from one of the generations.
        if try reader.isCopied(id) { return Removal() }
        let current = try reader.currentGeneration(of: id)
        var kept: [GenerationName] = []
        if keeping > 0, let previous = try reader.previousGeneration(of: id) {
            let others = try reader.predecessors(of: id).filter { $0 != previous }
            kept = [previous] + others.prefix(keeping - 1)
        }
        var removal = Removal()
        for name in try reader.generations(of: id) where name != current && !kept.contains(name) {
            removal.attempt { removal throws(FileError) in
                let isGone = try removeGeneration(name, of: id)
                if isGone { removal.generations += 1 } else { removal.inUse += 1 }
            }
        }
        removal.attemptStep { () throws(ContainerError) in
            if current == nil, try reader.generations(of: id).isEmpty {
                try removeDirectory(ofGenerations: id)
            }
            if try reader.recordedPin(of: id) != nil, try reader.pin(of: id) == nil {
                try removePin(of: id)
            }
            return Removal()
        }
        return removal
    }

    /// Deletes a generation after calling `unlink`, which removes its link if it has one; returns `false` if
    /// it is leased.
    private func removeGeneration(
        _ name: GenerationName,
        of id: PackID,
        unlink: () throws(FileError) -> Void = {}
    ) throws(FileError) -> Bool {
        guard let directory = try generations.directory(FilePath(id.component)) else { return true }
        let path = FilePath(name.component).appending(ContainerLayout.lease)
        let lease = try FileLock.attempt(try directory.leaseFile(replacing: path), mode: .exclusive)
        guard let lease else { return false }
        try unlink()
        // Holds the lock until the end, so that `gc` does not take it for an abandoned area.
        try removeLeased(name.component, in: directory, prefix: id.text)
        _ = consume lease
        return true
    }

    /// Deletes a directory whose lease is held exclusively.
    ///
    /// Moves it to `staging/` first, so that a crash leaves no incomplete generation. The move fails on
    /// overlayfs, for a directory of a lower layer, and on a full disk without a block for the new name. Then
    /// deletes in place: the record first, since a generation without a record is no target of a rollback, and
    /// the lease last, so that the rest is gone before the lease can be acquired again.
    func removeLeased(
        _ name: FilePath.Component,
        in directory: Directory,
        prefix: String
    ) throws(FileError) {
        let trash = try makeUniqueName(prefix)
        do throws(FileError) {
            try directory.rename(name, toUnused: trash, in: staging)
            try staging.removeTree(trash)
        } catch {
            guard error.errno == .improperLink || error.isOutOfSpace,
                let here = try directory.directory(FilePath(name))
            else { throw error }
            try here.remove(ContainerLayout.packRecord)
            for entry in try here.entries() where entry.name != ContainerLayout.lease {
                try here.removeTree(entry.name)
            }
            try here.remove(ContainerLayout.lease)
            try directory.removeEmpty(name)
        }
    }

    /// Removes the directory of a pack's generations if it is empty.
    private func removeDirectory(ofGenerations id: PackID) throws(ContainerError) {
        try ContainerError.wrapping { () throws(FileError) in
            try generations.removeEmpty(id.component)
        }
    }
}

extension Container {
    /// Evicts a generation, unless it is leased, the pack is pinned to it, or its role has changed since the
    /// decision.
    ///
    /// Acquires the lease exclusively before removing the link: a reader that comes in between finds the pack
    /// not staged, and a reader that came before keeps the pack staged.
    ///
    /// - Parameters:
    ///   - generation: The generation to evict.
    ///   - isCurrent: `true` if it was the current generation at the time of the decision.
    ///   - lock: The lock on the pack.
    /// - Returns: `true` if the generation was deleted.
    /// - Throws: ``ContainerError/file(_:)`` if the container cannot be changed.
    public func evict(
        _ generation: GenerationName,
        isCurrent: Bool,
        holding lock: PackLock
    ) throws(ContainerError) -> Bool {
        let id = lock.id
        guard (try reader.currentGeneration(of: id) == generation) == isCurrent else {
            return false
        }
        if isCurrent, try reader.pin(of: id) != nil { return false }
        let isGone = try ContainerError.wrapping { () throws(FileError) in
            try removeGeneration(generation, of: id) { () throws(FileError) in
                guard isCurrent else { return }
                try packs.remove(id.component)
                try packs.synchronize()
            }
        }
        if isGone, try reader.generations(of: id).isEmpty {
            try removePin(of: id)
            try removeDirectory(ofGenerations: id)
        }
        return isGone
    }
}

extension Directory {
    /// Removes a directory if it is empty.
    fileprivate func removeEmpty(_ name: FilePath.Component) throws(FileError) {
        do throws(FileError) {
            try removeDirectory(name)
        } catch {
            guard error.errno == .directoryNotEmpty else { throw error }
        }
    }
}
