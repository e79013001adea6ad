import Logging
import StageContainer
import StageModel

extension StagingService {
    /// Returns the restrictions of the registration, which apply until the application has loaded a pack.
    ///
    /// Packs that are requested by name are not restricted, since the application already runs.
    func restrictions(
        _ reader: ContainerReader?
    ) throws(StagingFailure) -> Registration.Restrictions? {
        guard case .event = request.packs, let registration = target.registration,
            let restrictions = registration.restrictions
        else { return nil }
        do throws(ContainerError) {
            let isLaunched = try reader?.hasLaunched(registration.application) ?? false
            return isLaunched || hasLaunchedElsewhere(registration) ? nil : restrictions
        } catch {
            throw StagingFailure(error)
        }
    }

    /// Returns whether the application has loaded a pack of another container that readers search.
    private func hasLaunchedElsewhere(_ registration: Registration) -> Bool {
        target.containersForReading.contains { path in
            guard path != target.knownContainer else { return false }
            do throws(ContainerError) {
                return try ContainerReader.open(path)?.hasLaunched(registration.application)
                    ?? false
            } catch {
                logger.info(
                    "Another container cannot be read",
                    metadata: ["container.path": "\(path)", "error": "\(error)"]
                )
                return false
            }
        }
    }
}
