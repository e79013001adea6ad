public import StageModel
import StageSystem
public import SystemPackage

/// Counts of what a removal deleted and what it kept.
public struct Removal: Equatable, Sendable {
    /// The number of generations deleted.
    public var generations = 0
    /// The number of deleted staging areas, temporary files and other leftovers of dead processes.
    public var leftovers = 0
    /// The number of deleted partial files that no run would resume.
    public var downloads = 0
    /// The number of generations, and of versions with single files, that stay because they are leased.
    public var inUse = 0

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
    }
}

extension Container {
    /// Unpublishes a pack, and deletes its generations and single files unless they are leased.
    ///
    /// Readers with a lease can continue to read; a later sweep deletes what they use. The pin is removed too.
    public func remove(_ lock: PackLock) throws(ContainerError) -> Removal {
        try ContainerError.wrapping { () throws(FileError) in
            try packs.remove(lock.id.component)
            try packs.synchronize()
        }
        try removePin(of: lock.id)
        var removal = try removePartialContent(of: lock.id)
        removal.add(try removeObsoleteGenerations(lock, keeping: 0))
        return removal
    }

    /// Deletes the generations of a pack that are not current, leased or kept.
    ///
    /// Keeps `keeping` generations: the previous one first, then the newest. Removes a pin that no longer
    /// matches the current generation.
    public func removeObsoleteGenerations(
        _ lock: PackLock,
        keeping: Int
    ) throws(ContainerError) -> Removal {
        let id = lock.id
        let current = try reader.currentGeneration(of: id)
        let previous = try reader.previousGeneration(of: id)
        var removal = Removal()
        var obsolete: [(place: (Int, Int64), name: GenerationName)] = []
        for name in try reader.generations(of: id) where name != current {
            // A generation with a damaged record counts as the oldest.
            let stagedAt = try reader.wholeRecord(of: name, id)?.stagedAt ?? 0
            obsolete.append(((name == previous ? 1 : 0, stagedAt), name))
        }
        obsolete.sort { $0.place > $1.place }
        for (_, name) in obsolete.dropFirst(keeping) {
            let isGone = try ContainerError.wrapping { () throws(FileError) in
                try removeGeneration(name, of: id)
            }
            if isGone { removal.generations += 1 } else { removal.inUse += 1 }
        }
        if current == nil, obsolete.count == removal.generations {
            try removeDirectory(ofGenerations: id)
        }
        if try reader.recordedPin(of: id) != nil, try reader.pin(of: id) == nil {
            try removePin(of: id)
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
        let lease = try FileLock.attempt(try directory.file(removingBehind: path), mode: .exclusive)
        guard let lease else { return false }
        try unlink()
        // Holds the lock until the end, so that no sweep takes it for an abandoned area.
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
            try directory.rename(name, to: trash, in: staging, replacing: false)
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

    /// Removes leftovers of dead processes, and downloads that `isWanted` does not accept.
    ///
    /// Safe at any time: running processes lock their areas and downloads, and if another process sweeps,
    /// abandoned areas are left to it.
    public func sweep(
        now: Int64,
        isWanted: (FilePath.Component) -> Bool
    ) throws(ContainerError) -> Removal {
        try ContainerError.wrapping { () throws(FileError) in
            var removal = try removeAbandonedAreas(isWanted)
            try removeDownloads(now: now, isWanted: isWanted, countingIn: &removal)
            let pins = try root.directory(FilePath(ContainerLayout.pins))
            let others = [pins].compactMap(\.self) + (try trustDirectories())
            for directory in [root, packs, manifests, histories] + others {
                for entry in try directory.entries()
                where try isStale(entry.name, in: directory, now: now) {
                    if try directory.removeTree(entry.name) { removal.leftovers += 1 }
                }
            }
            if let extensions = try root.directory(FilePath(ContainerLayout.extensions)) {
                // An extension runs for minutes at most, so a folder that is a day old is abandoned, as is one
                // whose removal was interrupted.
                for entry in try extensions.entries() {
                    guard let status = try extensions.status(entry.path),
                        entry.path.string.hasPrefix(ContainerLayout.removedPrefix)
                            || status.modified < now - 86400
                    else { continue }
                    try extensions.removeTree(entry.name)
                    removal.leftovers += 1
                }
            }
            return removal
        }
    }

    /// Returns the directories of signed metadata.
    private func trustDirectories() throws(FileError) -> [Directory] {
        guard let trust = try root.directory(FilePath(ContainerLayout.trust)) else { return [] }
        var found = [trust]
        for entry in try trust.entries() where entry.kind == .directory {
            guard let directory = try trust.directory(entry.path) else { continue }
            found.append(directory)
            let roots = try directory.directory(FilePath(ContainerLayout.roots))
            found += [roots].compactMap(\.self)
        }
        return found
    }

    /// Removes leftovers of killed processes that no later run resumes: staging areas that cannot be resumed,
    /// and downloads of packs that are staged.
    ///
    /// Lists two directories that are usually empty. Keeps downloads for the manifests of other applications.
    public func removeRemains(of packs: [Pack]) throws(ContainerError) -> Removal {
        let staged = try stagedContent(of: packs)
        return try ContainerError.wrapping { () throws(FileError) in
            var removal = Removal()
            if try staging.entries().contains(where: { !isWantedArea($0.name) { _ in true } }) {
                removal = try removeAbandonedAreas { _ in true }
            }
            // The age of extensions' files is irrelevant here: none of them is content of a staged pack.
            try removeDownloads(
                now: 0,
                isWanted: { !staged.contains(ContainerLayout.digestPart(of: $0)) },
                countingIn: &removal
            )
            return removal
        }
    }

    /// Returns the names of the downloads that belong to staged packs.
    private func stagedContent(of packs: [Pack]) throws(ContainerError) -> Set<Substring> {
        let names = try ContainerError.wrapping { () throws(FileError) -> Set<Substring> in
            Set(try downloads.entries().map { ContainerLayout.digestPart(of: $0.name) })
        }
        guard !names.isEmpty else { return [] }
        var staged: Set<Substring> = []
        for pack in packs {
            let wanted = pack.downloads.map { $0.description[...] }.filter(names.contains)
            guard !wanted.isEmpty, let current = try reader.currentGeneration(of: pack.id),
                current.holds(pack)
            else { continue }
            staged.formUnion(wanted)
        }
        return staged
    }

    /// Removes areas of dead processes, except those that a later run can resume and `isWanted` accepts.
    private func removeAbandonedAreas(
        _ isWanted: (FilePath.Component) -> Bool
    ) throws(FileError) -> Removal {
        var removal = Removal()
        let births = try lockFile(Self.birthLock, in: locks)
        if let alone = try FileLock.attempt(births, mode: .exclusive) {
            for entry in try staging.entries() where !isWantedArea(entry.name, isWanted: isWanted) {
                guard try isAbandoned(entry) else { continue }
                try staging.removeTree(entry.name)
                removal.leftovers += 1
            }
            _ = consume alone
        }
        return removal
    }

    /// Removes downloads that `isWanted` does not accept and that no process is working on.
    private func removeDownloads(
        now: Int64,
        isWanted: (FilePath.Component) -> Bool,
        countingIn removal: inout Removal
    ) throws(FileError) {
        for entry in try downloads.entries() where !isWanted(entry.name) {
            let base = FilePath.Component(String(ContainerLayout.digestPart(of: entry.name)))
            guard let base, let status = try downloads.status(entry.path) else {
                continue
            }
            let isLock = entry.path.string.hasSuffix(".lock")
            // No manifest names the files of extensions; they are kept for a week in case they are requested
            // again.
            if !isLock, base.string.hasPrefix(ContainerLayout.fileDownloadPrefix),
                status.modified > now - 7 * 86400
            {
                continue
            }
            guard let lock = try attemptLock(ofDownload: base) else { continue }
            if !isLock, try downloads.removeTree(entry.name) {
                removal.downloads += 1
            }
            lock.end()
        }
    }

    /// Returns whether the entry is a temporary file that a dead process left.
    ///
    /// A running process renames its temporary file at once, so one that is an hour old is abandoned.
    private func isStale(
        _ name: FilePath.Component,
        in directory: Directory,
        now: Int64
    ) throws(FileError) -> Bool {
        guard Directory.isTemporary(name),
            let status = try directory.status(FilePath(name))
        else { return false }
        return status.modified < now - 3600
    }

    /// Returns whether a later run can resume the area.
    private func isWantedArea(
        _ name: FilePath.Component,
        isWanted: (FilePath.Component) -> Bool
    ) -> Bool {
        let mark = name.string.split(separator: ".").last ?? ""
        // Areas with other names cannot be resumed.
        guard let digest = try? Digest(hexadecimal: String(mark)) else { return false }
        return isWanted(ContainerLayout.downloadName(of: digest))
    }

    /// Returns whether the area, or the generation being deleted, belongs to a dead process.
    ///
    /// Only an exclusive lock counts, since it requires write permission: a reader with a shared lock on the
    /// lease of a deleted generation must not keep the rest.
    private func isAbandoned(_ entry: DirectoryEntry) throws(FileError) -> Bool {
        guard entry.kind == .directory else { return true }
        let path = entry.path.appending(ContainerLayout.lease)
        guard let lease = try staging.leaseFile(path) else { return true }
        return try !FileLock.isHeldExclusively(on: lease)
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
